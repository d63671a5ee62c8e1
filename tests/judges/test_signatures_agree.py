"""Our signatures are those of botocore, for every path, body and key (wire 5)."""

import hashlib
from datetime import UTC, datetime
from urllib.parse import quote

import pytest
from models_support import ScheduledConnector, VirtualClock, ask, in_virtual_time, outcome, whole

from semel.adapters.models.bedrock_converse.sigv4 import AwsKeys, region_of, signed_headers
from semel.adapters.models.catalog import ModelOptions, build_model, key_problem, resolve
from semel.ports.model import FailureClass

AT = datetime(2026, 11, 30, 12, 34, 56, tzinfo=UTC)
MODELS = (
    "m",
    "anthropic.claude-opus-5-5-v1:0",
    "arn:aws:bedrock:eu-west-1:123456789012:inference-profile/eu.anthropic.claude:0",
    "ä b~c",
)
KEYS = (AwsKeys(access_key="AKIDEXAMPLE", secret_key="wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
        AwsKeys(access_key="AKID", secret_key="s", session_token="tok/en+=="))  # fmt: skip


def by_botocore(url: str, body: bytes, keys: AwsKeys, region: str) -> dict[str, str]:
    """The same request, signed by Amazon's own code at the same moment."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    request = AWSRequest(method="POST", url=url, data=body, headers={"content-type": "application/json"})
    request.context["timestamp"] = AT.strftime("%Y%m%dT%H%M%SZ")
    auth = SigV4Auth(Credentials(keys.access_key, keys.secret_key, keys.session_token or None), "bedrock", region)
    auth._modify_request_before_signing(request)
    canonical = auth.canonical_request(request)
    signature = auth.signature(auth.string_to_sign(request, canonical), request)
    auth._inject_signature_to_request(request, signature)
    return {name.lower(): value for name, value in request.headers.items()}


def test_signatures_equal_those_of_the_official_code():
    compared = 0
    for model in MODELS:
        for keys in KEYS:
            for body in (b"", b"{}", '{"a":"Zürich"}'.encode()):
                for region in ("us-east-1", "eu-west-1"):
                    path = f"/model/{quote(model, safe='')}/converse-stream"
                    url = f"https://bedrock-runtime.{region}.amazonaws.com{path}"
                    ours = signed_headers(url, body, {"content-type": "application/json"}, keys=keys, region=region, at=AT)
                    theirs = by_botocore(url, body, keys, region)
                    assert ours["authorization"] == theirs["authorization"], (model, body)
                    assert ours["x-amz-date"] == theirs["x-amz-date"]
                    assert ours.get("x-amz-security-token") == theirs.get("x-amz-security-token")
                    compared += 1
    print(f"{compared} signatures")
    assert compared == 48


def test_a_signature_over_another_body_is_another_signature():
    """Negative control."""
    url = "https://bedrock-runtime.us-east-1.amazonaws.com/model/m/converse-stream"
    given = {"keys": KEYS[0], "region": "us-east-1", "at": AT}
    one = signed_headers(url, b"{}", {}, **given)["authorization"]
    assert one != signed_headers(url, b"{ }", {}, **given)["authorization"]
    assert one != signed_headers(url.replace("/m/", "/n/"), b"{}", {}, **given)["authorization"]


AWS = {"AWS_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": "AKIDCANARY", "AWS_SECRET_ACCESS_KEY": "secret-canary-71aa"}
SPEC = "bedrock:anthropic.claude-opus-5-5-v1:0"


async def sent(spec: str, environ: dict[str, str], options: ModelOptions | None = None):
    clock = VirtualClock()
    connector = ScheduledConnector(clock, whole(b""))
    model = build_model(spec, clock=clock, environ=environ, options=options, connector=connector)
    _, end = await in_virtual_time(clock, outcome(model, ask()))
    await model.close()
    return connector.requests, end


@pytest.mark.anyio
async def test_a_request_leaves_signed_and_its_body_does_not_know_of_it():
    requests, _ = await sent(SPEC, AWS)
    request = requests[0]
    assert request.url.raw_path == b"/model/anthropic.claude-opus-5-5-v1%3A0/converse-stream"
    said = request.headers["authorization"]
    assert said.startswith("AWS4-HMAC-SHA256 Credential=AKIDCANARY/20260921/eu-west-1/bedrock/aws4_request, SignedHeaders=")
    assert "secret-canary" not in str(request.headers)
    body = await request.aread()
    assert b"AKIDCANARY" not in body
    assert hashlib.sha256(body).hexdigest() == (build_model(SPEC, clock=VirtualClock(), environ=AWS).render(ask()).sha256)


@pytest.mark.anyio
async def test_a_bearer_key_is_used_where_there_is_one_and_the_shape_is_frozen():
    environ = {**AWS, "AWS_BEARER_TOKEN_BEDROCK": "bk-1"}
    requests, _ = await sent(SPEC, environ)
    assert requests[0].headers["authorization"] == "Bearer bk-1"
    assert '"auth":"sigv4"' in resolve(SPEC, ModelOptions(), AWS).options
    assert '"auth":"sigv4"' not in resolve(SPEC, ModelOptions(), environ).options


@pytest.mark.anyio
async def test_missing_keys_are_named_and_nothing_is_sent():
    requests, end = await sent(SPEC, {"AWS_REGION": "eu-west-1"})
    assert (end.failure, requests) == (FailureClass.AUTH, [])
    assert "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in str(end)
    assert "AWS_SECRET_ACCESS_KEY" in key_problem(resolve(SPEC, ModelOptions(), AWS), environ={})
    assert key_problem(resolve(SPEC, ModelOptions(), AWS), environ=AWS) is None


@pytest.mark.anyio
async def test_the_keys_of_the_environment_sign_for_no_host_that_nobody_named():
    """A11: the endpoint may come from a log. A host that no row serves gets no signature, unless the operator says so."""
    spec = "bedrock_converse:m@https://evil.example"
    signed = ModelOptions(dialect={"auth": "sigv4"})
    requests, _ = await sent(spec, AWS, signed)
    assert "authorization" not in requests[0].headers
    named = ModelOptions(dialect={"auth": "sigv4", "region": "us-gov-west-1"}, key_env="AWS_SECRET_ACCESS_KEY")
    requests, _ = await sent("bedrock_converse:m@https://vpce-1.house.example", AWS, named)
    assert "/us-gov-west-1/bedrock/" in requests[0].headers["authorization"]


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("bedrock-runtime.eu-west-1.amazonaws.com", "eu-west-1"),
        ("bedrock-runtime-fips.us-east-1.amazonaws.com", "us-east-1"),
        ("bedrock-runtime.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("bedrock-runtime.eu-west-1.amazonaws.com.evil.example", None),
        ("127.0.0.1", None),
    ],
)
def test_the_region_is_read_from_the_host(host, region):
    assert region_of(host) == region
