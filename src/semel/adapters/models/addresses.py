"""A host's name is resolved once, what comes back is checked, and the connection goes to that very address (A11).

So a name that resolves to this machine or to a cloud's metadata service gets no request, and neither does one that resolves
differently the second time. A name in a private network is the operator's own business: only an operator names hosts.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence

from semel.core.values import printable
from semel.ports.model import FailureClass, ModelFailed

_THIS_NETWORK = ipaddress.ip_network("0.0.0.0/8")
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]


async def resolved(host: str, port: int) -> Sequence[str]:
    """The addresses of a name, as the system orders them. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


async def checked(host: str, port: int, resolve: Resolver) -> Sequence[str]:
    """The addresses that a request to `host` may go to. Raises ModelFailed."""
    try:
        addresses = await resolve(host, port)
    except OSError as error:
        raise ModelFailed(
            FailureClass.UNREACHABLE,
            f"{host}: the name is not known here; check it, and the network ({printable(str(error), limit=100)})",
        ) from None
    for address in addresses:
        if (what := _forbidden(address)) is not None:
            raise ModelFailed(
                FailureClass.UNREACHABLE, f"{host} resolves to {address}, {what}; nothing was sent", retryable=False
            )
    return addresses


def is_name(host: str) -> bool:
    """Whether a host has to be resolved; an address, and this machine by its name, do not."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host != "localhost"
    return False


def _forbidden(text: str) -> str | None:
    """What is wrong with an address that a name stands for; None if nothing is."""
    address = ipaddress.ip_address(text.partition("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_loopback or address.is_unspecified:
        return "which is this machine"
    if address.is_link_local:
        return "which is of this machine's own link"
    odd = address.is_multicast or (address.version == 4 and address in _THIS_NETWORK)
    return "which no model is served at" if odd else None
