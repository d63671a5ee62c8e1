"""What opens an endpoint: a key never travels to a host that it was not configured for, and shows in no text (A11, A13)."""

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Literal, Protocol

from semel.adapters.models.endpoint import Endpoint
from semel.core.values import Frozen
from semel.errors import BadSettings

KeyReader = Callable[[], str | Awaitable[str]]
Auth = Literal["bearer", "x-api-key", "x-goog-api-key", "api-key", "sigv4"]
_KEY = re.compile(r"[\x21-\x7e]+")
_UNDERSCORES = {".": 1, "-": 2, ":": 3, "::": 5}
_REMEMBERED = 8
_TELLING_CHARS = 8  # so many first characters of a key are no longer a vendor's prefix alone


class Outgoing(Frozen, frozen=True, kw_only=True):
    """What is about to be sent; a signature covers it. `path` follows the base URL, header names are lower case."""

    endpoint: Endpoint
    path: str
    body: bytes
    headers: dict[str, str]


class Credential(Protocol):
    """Authorizes requests to one host, in the shape that the run's bundle froze (P5)."""

    @property
    def name(self) -> str:
        """Where it comes from, never what it is."""

    async def headers(self, outgoing: Outgoing) -> dict[str, str]:
        """The headers that authorize a request. Raises BadSettings."""

    def redact(self, text: str) -> str:
        """`text` without anything secret, should a server have repeated it. To be used before a text is cut short."""

    def origin(self) -> str:
        """Where the secret of the last request came from, in words, for whoever reads that it was refused."""


def key_variable(host: str) -> str:
    """The environment variable that holds the key of a host without an entry in the catalog. The name binds it to the host.

    So no two hosts have the same: between letters and digits one underscore is a dot, two are a hyphen, three are the colon of an
    IPv6 address and five its double colon.
    """
    return "SEMEL_KEY_" + re.sub(r"::|[^A-Z0-9]", lambda found: "_" * _UNDERSCORES.get(found[0], 7), host.upper())


class ApiKey:
    """A key of one host. It is read anew for each request, so that it may rotate. Implements Credential."""

    __slots__ = ("_auth", "_host", "_read", "_sent", "name", "optional")

    def __init__(self, *, host: str, name: str, read: KeyReader, optional: bool, auth: Auth = "bearer") -> None:
        """`name` says in errors where the key should have come from; an `optional` one may be absent."""
        self._host, self._read, self._auth = host, read, auth
        self._sent: tuple[str, ...] = ()  # the newest last; older ones may still be in an answer that is under way
        self.name, self.optional = name, optional

    def __repr__(self) -> str:
        """Where it comes from and whom it is for, never what it is."""
        return f"ApiKey({self.name} for {self._host})"

    async def headers(self, outgoing: Outgoing) -> dict[str, str]:
        """The authorization header; none where there is no key and none is needed. Raises BadSettings."""
        check_host(self._host, self.name, outgoing.endpoint)
        key = await fetch(self._read, self.name, self._host)
        if not key and self.optional:
            return {}
        if not key:
            raise BadSettings(f"no key for {self._host}: set {self.name}")
        check_secret(key, self.name)
        self._sent = (*(old for old in self._sent if old != key), key)[-_REMEMBERED:]
        return {"authorization": f"Bearer {key}"} if self._auth == "bearer" else {self._auth: key}

    def redact(self, text: str) -> str:
        """`text` without the keys."""
        return redacted(text, self._sent)

    def origin(self) -> str:
        """Where the key came from."""
        return f"the key came from {self.name}" if self._sent else f"no key was sent; set {self.name}"


def redacted(text: str, secrets: Iterable[str]) -> str:
    """`text` without the secrets, also as JSON may write them, and without the start of one in which the text was cut."""
    forms = {form for secret in secrets if secret for form in (secret, secret.replace("/", "\\/"))}
    longest_first = sorted(forms, key=len, reverse=True)  # since one may be the start of another
    for form in longest_first:
        text = text.replace(form, "[key]")
    for form in longest_first:
        if (at := _cut_in(text, form)) >= 0:
            return text[:at] + "[key]"
    return text


def _cut_in(text: str, secret: str) -> int:
    """Where the start of a secret begins that `text` ends with; -1 if it ends with none."""
    start = secret[:_TELLING_CHARS]
    at = text.find(start, max(0, len(text) - len(secret)))
    while at >= 0 and not secret.startswith(text[at:]):
        at = text.find(start, at + 1)
    return at


def key_from(environ: Mapping[str, str], name: str, endpoint: Endpoint, *, optional: bool, auth: Auth = "bearer") -> ApiKey:
    """The key that `environ` holds under `name`, bound to the host of `endpoint`."""
    return ApiKey(host=endpoint.host, name=name, read=lambda: environ.get(name, ""), optional=optional, auth=auth)


def check_host(host: str, name: str, endpoint: Endpoint) -> None:
    """Raise BadSettings unless the endpoint is where the key belongs."""
    if endpoint.host != host:
        raise BadSettings(f"the key in {name} is for {host}, not for {endpoint.host}; it was not sent")


def check_secret(secret: str, name: str) -> None:
    """Raise BadSettings if a secret cannot be a header's value; it may have been pasted with more around it."""
    if not _KEY.fullmatch(secret):
        raise BadSettings(f"the key in {name} holds characters that no key has; it was not sent")


async def fetch(read: KeyReader, name: str, host: str) -> str:
    """Read a key. Raises BadSettings, which tells of a failure its kind only."""
    try:
        found = read()
        return (await found if inspect.isawaitable(found) else found).strip()
    except Exception as error:  # noqa: BLE001  # whatever a caller's source raises may hold the key, so only its kind is told
        raise BadSettings(f"the key for {host} could not be read from {name}: {type(error).__name__}") from None
