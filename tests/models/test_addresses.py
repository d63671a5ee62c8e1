"""A11: a base URL comes from the operator, its name is resolved once and checked, and nothing else is ever connected to."""

import asyncio
import datetime
import ipaddress
import socket
import ssl

import httpx2
import pytest
from models_support import HandClock, VirtualClock, in_virtual_time

from semel.adapters.models.addresses import checked, is_name
from semel.adapters.models.deadline import Limits
from semel.adapters.models.endpoint import parse_endpoint
from semel.adapters.models.keys import key_from, key_variable
from semel.adapters.models.transport import Transport
from semel.errors import BadSettings
from semel.ports.model import FailureClass, ModelFailed

pytestmark = pytest.mark.anyio


class Capturing(httpx2.AsyncBaseTransport):
    """Notes where requests go; some addresses are dead."""

    def __init__(self, *dead: str) -> None:
        self.dead, self.requests = dead, []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        if request.url.host in self.dead:
            raise httpx2.ConnectError("nobody there")
        return httpx2.Response(200, content=b"{}")


def names(*answers: list[str]):
    """A resolver that gives these answers one after the other, the last one for ever; it counts how often it was asked."""
    left = list(answers)

    async def resolve(_host: str, _port: int) -> list[str]:
        resolve.asked += 1
        return left.pop(0) if len(left) > 1 else left[0]

    resolve.asked = 0
    return resolve


def transport(url: str, resolve, connector, clock: VirtualClock | None = None) -> Transport:
    endpoint = parse_endpoint(url)
    key = key_from({"K": "sk-1"}, "K", endpoint, optional=False)
    clock = clock or HandClock()
    return Transport(endpoint=endpoint, key=key, clock=clock, limits=Limits(), connector=connector, resolve=resolve)


async def post(way: Transport, path: str = "/chat") -> int:
    async with way.post(path, body=b"x", headers={}) as exchange:
        return exchange.status


FORBIDDEN = [
    "127.0.0.1",
    "127.9.9.9",
    "::1",
    "::ffff:127.0.0.1",
    "169.254.169.254",
    "::ffff:169.254.169.254",
    "fe80::1%eth0",
    "0.0.0.0",
    "0.1.2.3",
    "::",
    "224.0.0.1",
    "ff02::1",
]


@pytest.mark.parametrize("address", FORBIDDEN)
async def test_a_name_that_resolves_to_this_machine_its_link_or_nowhere_gets_no_request_and_no_key(address):
    connector = Capturing()
    way = transport("https://llm.example/v1", names([address]), connector)
    with pytest.raises(ModelFailed, match="nothing was sent") as caught:
        await post(way)
    assert (caught.value.failure, caught.value.retryable, connector.requests) == (FailureClass.UNREACHABLE, False, [])
    mixed = transport("https://llm.example/v1", names(["203.0.113.7", address]), connector)
    with pytest.raises(ModelFailed):
        await post(mixed)
    assert connector.requests == []


async def test_the_request_goes_to_the_address_that_was_checked_under_the_name_that_was_meant():
    connector = Capturing()
    resolve = names(["203.0.113.7"], ["127.0.0.1"])  # resolves differently the second time
    way = transport("https://llm.example:8443/v1", resolve, connector)
    assert await post(way, "/model/a%3A0%2Fb/x?alt=sse") == 200
    request = connector.requests[0]
    assert str(request.url) == "https://203.0.113.7:8443/v1/model/a%3A0%2Fb/x?alt=sse"
    assert request.headers["host"] == "llm.example:8443"
    assert request.extensions["sni_hostname"] == "llm.example"
    assert resolve.asked == 1
    with pytest.raises(ModelFailed):
        await post(way)
    assert len(connector.requests) == 1


async def test_a_private_network_is_the_operators_own_business():
    connector = Capturing()
    assert await post(transport("https://llm.house.example/v1", names(["10.1.2.3"]), connector)) == 200


async def test_the_next_address_is_tried_only_where_no_connection_was_made_and_the_one_that_worked_is_kept():
    connector = Capturing("203.0.113.7", "2001:db8::1")
    way = transport("https://llm.example/v1", names(["203.0.113.7", "2001:db8::1", "203.0.113.8"]), connector)
    await post(way)
    await post(way)
    assert [request.url.host for request in connector.requests] == ["203.0.113.7", "2001:db8::1", "203.0.113.8", "203.0.113.8"]
    dead = transport("https://llm.example/v1", names(["203.0.113.7"]), connector)
    with pytest.raises(ModelFailed) as caught:
        await post(dead)
    assert (caught.value.failure, caught.value.retryable) == (FailureClass.UNREACHABLE, True)
    empty = transport("https://llm.example/v1", names([]), connector)
    with pytest.raises(ModelFailed, match="no address"):
        await post(empty)


class Hanging(Capturing):
    """Some addresses say nothing at all, as over a broken IPv6."""

    def __init__(self, clock: VirtualClock, *silent: str) -> None:
        super().__init__()
        self.clock, self.silent = clock, list(silent)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        if request.url.host in self.silent:
            await self.clock.sleep(86_400)
        return httpx2.Response(200, content=b"{}")


async def test_an_address_that_says_nothing_costs_one_exchange_and_is_then_tried_last():
    addresses = ["2001:db8::1", "2001:db8::2", "203.0.113.7"]
    clock = VirtualClock()
    connector = Hanging(clock, *addresses[:2])
    way = transport("https://llm.example/v1", names(addresses), connector, clock)

    async def posts() -> list[int | FailureClass]:
        found = []
        for _ in range(4):
            try:
                found.append(await post(way))
            except ModelFailed as failed:
                found.append(failed.failure)
        return found

    assert await in_virtual_time(clock, posts()) == [FailureClass.UNREACHABLE, FailureClass.UNREACHABLE, 200, 200]
    assert [request.url.host for request in connector.requests] == [*addresses, "203.0.113.7"]
    assert 30 <= clock.monotonic() < 31
    connector.silent = ["203.0.113.7"]  # the one that worked falls silent, and the one that was so the longest is back
    connector.requests.clear()
    assert await in_virtual_time(clock, posts()) == [FailureClass.UNREACHABLE, 200, 200, 200]
    assert [request.url.host for request in connector.requests] == ["203.0.113.7", *["2001:db8::1"] * 3]
    assert way._silent == ["2001:db8::2", "203.0.113.7"]


async def test_an_exchange_that_is_cancelled_while_it_connects_says_nothing_of_the_address():
    clock = VirtualClock()
    connector = Hanging(clock, "203.0.113.7")
    way = transport("https://llm.example/v1", names(["203.0.113.7", "203.0.113.8"]), connector, clock)
    for _ in range(2):
        task = asyncio.ensure_future(post(way))
        for _ in range(50):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert [request.url.host for request in connector.requests] == ["203.0.113.7"] * 2


async def test_a_name_that_nobody_knows_says_so():
    async def unknown(_host: str, _port: int) -> list[str]:
        raise socket.gaierror("Name or service not known")

    with pytest.raises(ModelFailed, match=r"llm\.example: the name is not known here") as caught:
        await checked("llm.example", 443, unknown)
    assert (caught.value.failure, caught.value.retryable) == (FailureClass.UNREACHABLE, True)


HOSTS = [
    "a-b.c",
    "a.b.c",
    "a.b-c",
    "a--b.c",
    "a---b",
    "a::b",
    "a:b::c",
    "a-b",
    "a.b",
    "a1.b",
    "::1",
    "1::",
    "127.0.0.1",
    "localhost",
]


def test_no_two_hosts_have_one_variable_for_their_keys():
    assert key_variable("api-house.example") == "SEMEL_KEY_API__HOUSE_EXAMPLE"
    assert key_variable("api.house.example") == "SEMEL_KEY_API_HOUSE_EXAMPLE"
    assert len({key_variable(host) for host in HOSTS}) == len(HOSTS)
    for host in ("a-.b", "a.-b", "a..b"):  # no names of hosts, and they would share one
        with pytest.raises(BadSettings):
            parse_endpoint(f"https://{host}/v1")


async def test_addresses_and_this_machine_are_not_resolved():
    assert [is_name(host) for host in ("127.0.0.1", "::1", "localhost", "llm.example")] == [False, False, False, True]
    resolve = names(["127.0.0.1"])
    connector = Capturing()
    assert await post(transport("http://127.0.0.1:9/v1", resolve, connector)) == 200
    assert await post(transport("http://localhost:9/v1", resolve, connector)) == 200
    assert resolve.asked == 0


def certificate(name: str) -> tuple[bytes, bytes]:
    """A certificate for a name that signs itself, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=36_500))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    return built.public_bytes(serialization.Encoding.PEM), secret


class Rerouted(httpx2.AsyncBaseTransport):
    """Real TLS to a server here, for requests that were checked to go to a documentation address."""

    def __init__(self, port: int, trust: ssl.SSLContext) -> None:
        self.port, self.real = port, httpx2.AsyncHTTPTransport(verify=trust, trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        assert ipaddress.ip_address(request.url.host) == ipaddress.ip_address("203.0.113.7")
        request.url = request.url.copy_with(host="127.0.0.1", port=self.port)
        return await self.real.handle_async_request(request)

    async def aclose(self) -> None:
        await self.real.aclose()


@pytest.mark.parametrize(("certified", "accepted"), [("llm.example", True), ("other.example", False)])
async def test_the_certificate_must_be_that_of_the_name_although_the_address_is_connected_to(tmp_path, certified, accepted):
    pem, secret = certificate(certified)
    for name, content in (("cert.pem", pem), ("key.pem", secret)):
        (tmp_path / name).write_bytes(content)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    trust = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    seen: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=serving) as server:
        port = server.sockets[0].getsockname()[1]
        way = transport("https://llm.example/v1", names(["203.0.113.7"]), Rerouted(port, trust))
        if accepted:
            assert await post(way) == 200
            assert "host: llm.example\r\n" in seen[0].lower()
        else:
            with pytest.raises(ModelFailed) as caught:
                await post(way)
            assert (caught.value.failure, caught.value.retryable, seen) == (FailureClass.UNREACHABLE, False, [])
        await way.close()


@pytest.mark.parametrize("name", ["../../evil", "a/b", "a?x=1", "a#b", "//evil.example", "@evil.example/x", "a\r\nhost: evil"])
async def test_a_models_name_cannot_leave_its_place_in_the_path(name):
    """The name of a Gemini or Bedrock model is part of the URL, and it may come from a log."""
    from models_support import ScheduledConnector, ask, outcome, whole
    from wire_support import bundle_of

    from semel.adapters.models.catalog import restore_model

    for family in ("gemini", "bedrock_converse"):
        clock = VirtualClock()
        connector = ScheduledConnector(clock, whole(b""))
        model = restore_model(bundle_of(family, model=name), clock=clock, environ={}, connector=connector)
        await in_virtual_time(clock, outcome(model, ask()))
        await model.close()
        url = connector.requests[0].url
        assert (url.host, url.port) == ("127.0.0.1", 9)
        path = url.raw_path.decode().partition("?")[0]
        assert path.count("/") == (3 if family == "gemini" else 4)
        assert path.startswith("/v1/model")
