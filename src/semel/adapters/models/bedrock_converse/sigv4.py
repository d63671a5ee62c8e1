"""AWS Signature Version 4 for one POST, and the keys that make it (wire 5). The signature is a header: no byte of the body."""

import hashlib
import hmac
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

from semel.adapters.models.keys import Outgoing, check_host, check_secret, redacted
from semel.core.values import Frozen
from semel.errors import BadSettings
from semel.ports.world import Clock

SERVICE = "bedrock"
ACCESS_KEY, SECRET_KEY, SESSION_TOKEN = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"
_REGION = re.compile(r"bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?")
_SIGNED = frozenset({"content-type"})


class AwsKeys(Frozen, frozen=True, kw_only=True):
    """What signs. `session_token` is for keys that expire."""

    access_key: str
    secret_key: str
    session_token: str = ""


def signed_headers(
    url: str, body: bytes, headers: Mapping[str, str], *, keys: AwsKeys, region: str, at: datetime
) -> dict[str, str]:
    """The headers that sign a POST of `body` to `url` at that moment."""
    parts = urlsplit(url)
    stamp = at.strftime("%Y%m%dT%H%M%SZ")
    added = {"x-amz-date": stamp, **({"x-amz-security-token": keys.session_token} if keys.session_token else {})}
    covered = {"host": parts.netloc, **{name: headers[name].strip() for name in headers if name in _SIGNED}, **added}
    names = ";".join(sorted(covered))
    canonical = "\n".join(
        (
            "POST",
            quote(parts.path or "/", safe="/-_.~"),  # encoded once more than it travels, as all services but S3 want it
            "&".join(sorted(parts.query.split("&"))),
            *(f"{name}:{covered[name]}" for name in sorted(covered)),
            "",
            names,
            hashlib.sha256(body).hexdigest(),
        )
    )
    scope = f"{stamp[:8]}/{region}/{SERVICE}/aws4_request"
    to_sign = "\n".join(("AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()))
    key = b"AWS4" + keys.secret_key.encode()
    for part in (stamp[:8], region, SERVICE, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    said = f"AWS4-HMAC-SHA256 Credential={keys.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    return {**added, "authorization": said}


def region_of(host: str) -> str | None:
    """The region that a Bedrock host is in; None for another host."""
    found = _REGION.fullmatch(host)
    return None if found is None else found[1]


class SigningKeys:
    """The keys of the environment, bound to one host. They are read anew for each request. Implements keys.Credential."""

    __slots__ = ("_clock", "_environ", "_host", "_region", "_sent", "name", "optional")

    def __init__(self, *, host: str, region: str, environ: Mapping[str, str], clock: Clock, optional: bool) -> None:
        """`optional` ones may be absent: the request then leaves unsigned."""
        self._host, self._region, self._environ, self._clock = host, region, environ, clock
        self._sent: AwsKeys | None = None
        self.name, self.optional = f"{ACCESS_KEY} and {SECRET_KEY}", optional

    def __repr__(self) -> str:
        """Where they come from and whom they are for, never what they are."""
        return f"SigningKeys({self.name} for {self._host})"

    async def headers(self, outgoing: Outgoing) -> dict[str, str]:
        """The signature. Raises BadSettings."""
        check_host(self._host, self.name, outgoing.endpoint)
        names = (ACCESS_KEY, SECRET_KEY, SESSION_TOKEN)
        access, secret, token = (self._environ.get(name, "").strip() for name in names)
        if not (access and secret) and self.optional:
            return {}
        if not (access and secret):
            raise BadSettings(f"no keys for {self._host}: set {self.name}")
        for value in filter(None, (access, secret, token)):
            check_secret(value, self.name)
        self._sent = AwsKeys(access_key=access, secret_key=secret, session_token=token)
        at = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        url = outgoing.endpoint.base_url + outgoing.path
        return signed_headers(url, outgoing.body, outgoing.headers, keys=self._sent, region=self._region, at=at)

    def redact(self, text: str) -> str:
        """`text` without the keys."""
        keys = self._sent
        return redacted(text, (keys.secret_key, keys.session_token, keys.access_key)) if keys else text

    def origin(self) -> str:
        """Where the keys came from."""
        return f"the keys came from {self.name}" if self._sent else f"no key was sent; set {self.name}"
