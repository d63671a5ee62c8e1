"""Where a model is served: what a base URL may be (A11)."""

import ipaddress
import re
from urllib.parse import urlsplit

from semel.core.values import Frozen
from semel.errors import BadSettings

_LABEL = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_HOST = re.compile(rf"{_LABEL}(\.{_LABEL})*")


class Endpoint(Frozen, frozen=True, kw_only=True):
    """The base URL of an API, without a trailing slash, and what the key rules need to know of it."""

    base_url: str
    host: str
    loopback: bool


def parse_endpoint(url: str) -> Endpoint:
    """Check a base URL: https, or http to a loopback address; no user, query, fragment or odd port. Raises BadSettings."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BadSettings(f"{url!r} is not a URL: {error}") from None
    host = (parts.hostname or "").lower()
    if parts.scheme not in ("http", "https"):
        raise BadSettings(f"{url!r} must start with https:// (or, on this machine only, http://)")
    if parts.username or parts.password or "@" in parts.netloc:
        raise BadSettings(f"the model URL for host {host!r} carries a user or password; put the key into an environment variable")
    if parts.query or parts.fragment or "\\" in url or any(c.isspace() or not c.isprintable() for c in url):
        raise BadSettings(f"{url!r} has a query, a fragment or odd characters; give the base URL only, such as https://host/v1")
    loopback = _loopback(url, host)
    if parts.scheme == "http" and not loopback:
        raise BadSettings(f"{url!r} must start with https:// (http:// is for this machine only, such as http://127.0.0.1)")
    shown = f"[{host}]" if ":" in host else host
    at = "" if port is None else f":{port}"
    return Endpoint(base_url=f"{parts.scheme}://{shown}{at}{parts.path.rstrip('/')}", host=host, loopback=loopback)


def _loopback(url: str, host: str) -> bool:
    """Whether a host is this machine. Hosts that only look like an address, or that no model is served at, are refused."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if not _HOST.fullmatch(host) or host.rsplit(".", 1)[-1].isdigit() or re.fullmatch(r"0x[0-9a-f]*", host):
            raise BadSettings(f"{url!r} does not name a host") from None
        return False
    mapped = getattr(address, "ipv4_mapped", None) or address
    if mapped.is_link_local or mapped.is_multicast or mapped.is_unspecified:
        raise BadSettings(f"{url!r} names an address that no model is served at")
    return bool(mapped.is_loopback)
