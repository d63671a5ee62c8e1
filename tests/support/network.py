"""Tests talk to this machine only: a hook below every library refuses, and remembers, whatever would leave it."""

import ipaddress
import socket
import sys

_strays: list[str] = []


class LeftThisMachine(OSError):
    """A test tried to reach another machine; nothing was sent."""


def is_local(host: object) -> bool:
    """Whether an address or name can only mean this machine; a name other than localhost is looked up outside."""
    name = host.decode() if isinstance(host, bytes) else host
    if name in {None, "", "localhost"}:
        return True
    try:
        address = ipaddress.ip_address(str(name).partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None) or address
    return mapped.is_loopback or mapped.is_unspecified


def _watch(event: str, args: tuple[object, ...]) -> None:
    if event == "socket.getaddrinfo":
        host: object = args[0]
    elif event in {"socket.connect", "socket.sendto", "socket.sendmsg"}:
        sock, address = args
        internet = getattr(sock, "family", None) in {socket.AF_INET, socket.AF_INET6}
        host = address[0] if internet and isinstance(address, tuple) else None
    else:
        return
    if not is_local(host):
        _strays.append(f"{event} to {host!r}")
        raise LeftThisMachine(f"tests talk to this machine only, and this was {event} to {host!r}")


def guard() -> None:
    """Refuse from now on, in this process and for good; later calls change nothing."""
    if not getattr(sys, "_semel_tests_guarded", False):
        sys.addaudithook(_watch)
        sys._semel_tests_guarded = True


def take_strays() -> list[str]:
    """What was refused since the last call. Code under test may have swallowed the error; the test still fails."""
    strays = _strays.copy()
    _strays.clear()
    return strays
