"""Where a model is served: what a base URL may be (A11)."""

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

from semel.core.values import Frozen
from semel.errors import BadSettings

_SHOWN = re.compile(r"[a-z0-9.:-]+")
_GIVE = "give the base URL only, such as https://host/v1"
_LABEL = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_HOST = re.compile(rf"{_LABEL}(\.{_LABEL})*")


class Endpoint(Frozen, frozen=True, kw_only=True):
    """The base URL of an API, without a trailing slash, and what the key rules need to know of it."""

    base_url: str
    host: str
    loopback: bool


def parse_endpoint(url: str) -> Endpoint:
    """Check a base URL: https, or http to a loopback address; no user, query, fragment or port 0. Raises BadSettings.

    Any other port will do: whoever is there and does not speak TLS as the host that was meant gets no request. The errors show
    scheme and host only, since what should not be in a URL may be a key (A13).
    """
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").lower()
    except ValueError:
        raise BadSettings(f"the model URL names no host that can be read; {_GIVE}") from None
    named = _named(parts.scheme, host)
    if parts.scheme not in ("http", "https"):
        raise BadSettings(f"{named} must start with https:// (or, on this machine only, http://)")
    if parts.username or parts.password or "@" in parts.netloc:
        raise BadSettings(f"{named} carries a user or password; put the key into an environment variable")
    if parts.query or parts.fragment or "\\" in url or any(c.isspace() or not c.isprintable() for c in url):
        raise BadSettings(f"{named} has a query, a fragment or odd characters; {_GIVE}")
    port = _port(parts, named)
    loopback = _loopback(named, host)
    if parts.scheme == "http" and not loopback:
        raise BadSettings(f"{named} must start with https:// (http:// is for this machine only, such as http://127.0.0.1)")
    shown = f"[{host}]" if ":" in host else host
    at = "" if port is None else f":{port}"
    return Endpoint(base_url=f"{parts.scheme}://{shown}{at}{parts.path.rstrip('/')}", host=host, loopback=loopback)


def _named(scheme: str, host: str) -> str:
    """The URL in an error; without a host that can be one, where its parts end is not known, and nothing of it is shown."""
    return f"the model URL {scheme}://{host}" if scheme in ("http", "https") and _SHOWN.fullmatch(host) else "the model URL"


def _port(parts: SplitResult, named: str) -> int | None:
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise BadSettings(f"{named} has a port that is no number from 1 to 65535; {_GIVE}")
    return port


def _loopback(named: str, host: str) -> bool:
    """Whether a host is this machine. Hosts that only look like an address, or that no model is served at, are refused."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if not _HOST.fullmatch(host) or host.rsplit(".", 1)[-1].isdigit() or re.fullmatch(r"0x[0-9a-f]*", host):
            raise BadSettings(f"{named} does not name a host") from None
        return False
    mapped = getattr(address, "ipv4_mapped", None) or address
    if mapped.is_link_local or mapped.is_multicast or mapped.is_unspecified:
        raise BadSettings(f"{named} names an address that no model is served at")
    return bool(mapped.is_loopback)
