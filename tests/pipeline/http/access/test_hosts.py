"""R12: tests of listeners with requests for other hosts, and of headers of every response."""

import socket
from collections.abc import AsyncIterator

import pytest

from config.schema import Http
from config.value_types import ListenAddress
from pipeline.http.allowed_hosts import Hosts
from pipeline.http.limits import Limits
from pipeline.http.listener_registry import ListenerRegistry
from pipeline.runtime.http_service import HttpService
from tests.pipeline.http.access.tls_clients import client_context
from tests.support.http import LOCAL, Client, Clients, Connect, listeners, says
from tests.support.web import Web, basic, certificate, hashed

EVIL = "evil.example.com"


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    async with Clients() as clients:
        yield clients.connect


async def respond_to(client: Client, text: str) -> tuple[int, dict[str, str], bytes]:
    client.send(text)
    return await client.answer()


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET /a HTTP/1.1\r\nHost: localhost", 200),
        ("GET /a HTTP/1.1\r\nHost: LOCALHOST.:80", 200),
        ("GET /a HTTP/1.1\r\nHost: [::1]:9400", 200),
        ("GET /a HTTP/1.0", 200),
        ("GET /a HTTP/1.0\r\nHost: evil.example.com", 421),
        ("GET /a HTTP/1.1\r\nHost: evil.example.com", 421),
        ("GET /a HTTP/1.1\r\nhost: EVIL.example.com.:9400", 421),
        ("POST /a HTTP/1.1\r\nContent-Length: 0\r\nHost: evil.example.com", 421),
        ("GET /nothing HTTP/1.1\r\nHost: evil.example.com", 421),
        ("GET / HTTP/1.1\r\nHost: evil.example.com", 421),
        # The target's host counts (RFC 9112, 3.2.2), and the header too.
        ("GET http://evil.example.com/a HTTP/1.1\r\nHost: localhost", 421),
        ("GET http://evil.example.com:80/a HTTP/1.1\r\nHost: localhost", 421),
        ("GET http://localhost/a HTTP/1.1\r\nHost: evil.example.com", 421),
        ("GET http://user@localhost/a HTTP/1.1\r\nHost: localhost", 200),
        ("GET http://[::1]:9400/a HTTP/1.1\r\nHost: [::1]:9400", 200),
        ("GET /healthz HTTP/1.1\r\nHost: evil.example.com", 200),
        ("GET /health HTTP/1.1\r\nHost: evil.example.com", 200),
        ("GET /readyz HTTP/1.1\r\nHost: evil.example.com", 503),
    ],
)
async def test_r12_a_request_for_a_host_that_is_not_allowed_gets_status_421(
    head: str, status: int, connect: Connect
) -> None:
    async with listeners().listen(LOCAL) as mounts:
        mounts.mount("/a", says("a"), title="A")
        mounts.mount("/b", says("b"), title="B", methods=("POST",), body_bytes=10)
        found, _, body = await respond_to(await connect(mounts.port), f"{head}\r\n\r\n")
        assert found == status
        assert (b"http.allowed_hosts" in body) is (status == 421)


async def test_r12_with_passwords_any_host_is_allowed(web: Web) -> None:
    web.write("basic_auth_users:", f"  a: {hashed('one')}")
    async with web.serving():
        client = await web.connect()
        head = f"GET /metrics HTTP/1.1\r\nHost: {EVIL}\r\n"
        assert (await respond_to(client, head + "\r\n"))[0] == 401
        assert (await respond_to(client, f"{head}{basic('a', 'one')}\r\n\r\n"))[0] == 200


@pytest.mark.parametrize(
    ("kind", "status"),
    [("RequireAndVerifyClientCert", 200), ("VerifyClientCertIfGiven", 421), ("", 421)],
)
async def test_r12_with_required_client_certificates_any_host_is_allowed(
    kind: str, status: int, web: Web
) -> None:
    more = (f"client_auth_type: {kind}", "client_ca_file: ca.crt") if kind else ()
    web.trust("clients")
    web.secure(*more)
    async with web.serving():
        shown = client_context(certificate("clients", "prometheus"))
        client = await web.connect(shown)
        answer = await respond_to(client, f"GET /metrics HTTP/1.1\r\nHost: {EVIL}\r\n\r\n")
        assert answer[0] == status


def local() -> ListenAddress:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return ListenAddress("127.0.0.1", probe.getsockname()[1])


async def test_r12_a_failed_change_of_the_setting_leaves_the_previous_one(
    connect: Connect,
) -> None:
    serving = HttpService(ListenerRegistry("gpu-7", lambda: (True, "ok"), lambda: (True, "ok")))
    address = local()

    async def status(host: str) -> int:
        client = await connect(address.port)
        return (await respond_to(client, f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"))[0]

    await serving.enter(Http(listen=address))
    try:
        machine = socket.gethostname()
        for host in ("gpu-7.example.com", machine, f"{machine}.example.com"):
            assert await status(host) == 200
        assert await status(EVIL) == 421
        with pytest.raises(RuntimeError):
            async with serving.changed(Http(listen=address, allowed_hosts=("*.example.com",))):
                raise RuntimeError
        assert await status(EVIL) == 421
        async with serving.changed(Http(listen=address, allowed_hosts=("*.example.com",))):
            pass
        assert await status(EVIL) == 200
        serving.rename("gpu-8")
        assert await status("gpu-8.example.net") == 200
        assert await status("gpu-7.example.net") == 421
        assert await status(EVIL) == 200, "a new name of the node does not change the setting"
    finally:
        await serving.leave()


async def test_r12_all_listen_addresses_share_the_allowed_hosts(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    shared = listeners(Hosts("--allowed-host"))
    other = ListenAddress.parse("[::1]:0") if socket.has_ipv6 else local()
    async with shared.listen(LOCAL) as first, shared.listen(other) as second:
        assert first.port != second.port
        client = await connect(first.port)
        for _ in range(3):
            answer = await respond_to(client, f"GET / HTTP/1.1\r\nHost: {EVIL}\r\n\r\n")
            assert answer[0] == 421
        assert len([line for line in caplog.messages if "--allowed-host" in line]) == 1


BAD = [
    "nonsense\r\n\r\n",
    "GET /a HTTP/1.1\r\n\r\n",
    "GET /a HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
    "GET /a HTTP/1.1\r\nHost: x\r\nX: " + "a" * 20_000 + "\r\n\r\n",
    "GET /a HTTP/9.9\r\nHost: x\r\n\r\n",
    "POST /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
]
GOOD = [
    ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 200),
    ("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 200),
    ("GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", 404),
    ("DELETE /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 405),
    (f"GET /metrics HTTP/1.1\r\nHost: {EVIL}\r\n\r\n", 421),
    ("POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\n", 413),
    ("GET /fails HTTP/1.1\r\nHost: x\r\n\r\n", 500),
]
HALF = "GET /a HTTP/1.1\r\n" + "".join(f"X{at}: {'a' * 900}\r\n" for at in range(30))


def check_headers(headers: dict[str, str]) -> None:
    assert headers["server"] == "podgpu"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-type"] == "text/plain; charset=utf-8"
    assert headers["x-frame-options"] == "deny", "from the web configuration"
    values = " ".join(headers.values()).lower()
    assert "aiohttp" not in values
    assert "python" not in values


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "status"),
    [*((text, 400) for text in BAD), *GOOD, (HALF, 431), (GOOD[0][0], 503)],
    ids=range(17),
)
async def test_r12_every_response_has_the_same_headers_and_no_version(
    text: str, status: int, web: Web
) -> None:
    """R12: also the 400 responses of aiohttp, and 503 responses to connections over the limit."""

    async def fails(_: object) -> None:
        raise ValueError

    web.write("http_server_config:", "  headers:", "    X-Frame-Options: deny")
    async with web.serving():
        (lease,) = web.listeners._listeners.values()
        (mounts,) = lease.registrations
        mounts.mount("/b", says("b"), title="B", methods=("POST",), body_bytes=10)
        mounts.mount("/fails", fails, title="F")  # type: ignore[arg-type]
        if status == 503:
            web.listeners.accounting._limits = Limits(connections=0)
        client = await web.connect()
        found, headers, body = await respond_to(client, text)
        assert found == status
        check_headers(headers)
        assert b"aiohttp" not in body.lower()


async def test_r12_responses_without_a_web_config_have_the_same_headers(connect: Connect) -> None:
    async with listeners().listen(LOCAL) as mounts:
        client = await connect(mounts.port)
        _, headers, _ = await respond_to(client, "nonsense\r\n\r\n")
        check_headers({**headers, "x-frame-options": "deny"})
