"""Where a model is served and which key opens it: a key never travels to a host that it was not configured for (A11, A13)."""

import inspect
import ipaddress
import re
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import urlsplit

from semel.core.values import Frozen
from semel.errors import BadSettings

KeyReader = Callable[[], str | Awaitable[str]]
_KEY = re.compile(r"[\x21-\x7e]+")
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


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


def key_variable(host: str) -> str:
    """The environment variable that holds the key of a host without an entry in the catalog. The name binds it to the host."""
    return "SEMEL_KEY_" + re.sub(r"[^A-Z0-9]", "_", host.upper())


class ApiKey:
    """A key of one host. It is read anew for each request, so that it may rotate, and shows itself in no text (MODEL-6)."""

    __slots__ = ("_host", "_last", "_read", "name", "optional")

    def __init__(self, *, host: str, name: str, read: KeyReader, optional: bool) -> None:
        """`name` says in errors where the key should have come from; an `optional` one may be absent."""
        self._host, self._read, self._last = host, read, ""
        self.name, self.optional = name, optional

    def __repr__(self) -> str:
        """Where it comes from and whom it is for, never what it is."""
        return f"ApiKey({self.name} for {self._host})"

    async def headers(self, endpoint: Endpoint) -> dict[str, str]:
        """The authorization header for `endpoint`; empty where there is no key and none is needed. Raises BadSettings."""
        if endpoint.host != self._host:
            raise BadSettings(f"the key in {self.name} is for {self._host}, not for {endpoint.host}; it was not sent")
        key = await self._fetch()
        if not key and self.optional:
            return {}
        if not key:
            raise BadSettings(f"no key for {self._host}: set {self.name}")
        if not _KEY.fullmatch(key):
            raise BadSettings(f"the key in {self.name} holds characters that no key has; it was not sent")
        self._last = key
        return {"authorization": f"Bearer {key}"}

    async def _fetch(self) -> str:
        try:
            read = self._read()
            return (await read if inspect.isawaitable(read) else read).strip()
        except Exception as error:  # noqa: BLE001  # whatever a caller's source raises may hold the key, so only its kind is told
            raise BadSettings(f"the key for {self._host} could not be read from {self.name}: {type(error).__name__}") from None

    def redact(self, text: str) -> str:
        """`text` without the key, should a server have repeated it. To be used before a text is cut short."""
        return text.replace(self._last, "[key]") if self._last else text

    def origin(self) -> str:
        """Where the key of the last request came from, in words, for whoever reads that it was refused."""
        return f"the key came from {self.name}" if self._last else f"no key was sent; set {self.name}"


def key_from(environ: Mapping[str, str], name: str, endpoint: Endpoint, *, optional: bool) -> ApiKey:
    """The key that `environ` holds under `name`, bound to the host of `endpoint`."""
    return ApiKey(host=endpoint.host, name=name, read=lambda: environ.get(name, ""), optional=optional)
