"""Requests and watch streams of the client, over real connections."""

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.base.errors import ApiError
from pipeline.component.contracts import KubeApi
from pipeline.kube.credentials import KubeconfigFile
from tests.pipeline.kube.conftest import (
    Responder,
    Server,
    connected,
    hang,
    kubeconfig,
    says,
    stream,
)
from tests.support.kube import status

PODS = "/api/v1/pods"
Config = Callable[[Server], KubeconfigFile]


async def lines(api: KubeApi, silence: float = 5) -> list[bytes]:
    async with api.watch(PODS, {"watch": "true"}, silence=silence) as sent:
        return [line async for line in sent]


async def error_of(api: KubeApi, silence: float = 5) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await lines(api, silence)
    return caught.value


async def test_a_request_has_its_parameters_and_the_credentials(config: Config) -> None:
    async with Server(says('{"items": []}')).serving() as server:
        async with connected(config(server)) as api:
            body = await api.get(PODS, {"fieldSelector": "spec.nodeName=a&b", "limit": "5"})
            await api.get(PODS, {})
        assert body == b'{"items": []}'
        first, second = server.heads
        assert first.startswith(f"GET {PODS}?fieldSelector=spec.nodeName%3Da%26b&limit=5 HTTP/1.1")
        assert second.startswith(f"GET {PODS} HTTP/1.1")
        assert "Accept: application/json" in first
        assert "User-Agent: podgpu/" in first
        assert server.tokens() == ["sesame", "sesame"]
        assert server.connections == 1


async def test_a_patch_is_a_merge_patch_of_one_object(config: Config) -> None:
    changes = {"metadata": {"annotations": {"a/b": "\u00e4", "gone": None}}}
    async with Server(says('{"kind": "Node"}')).serving() as server:
        async with connected(config(server)) as api:
            assert await api.patch("/api/v1/nodes/node-1", changes) == b'{"kind": "Node"}'
        (head,), (body,) = server.heads, server.bodies
        assert head.startswith("PATCH /api/v1/nodes/node-1 HTTP/1.1")
        assert "Content-Type: application/merge-patch+json" in head
        assert json.loads(body) == changes
        assert server.tokens() == ["sesame"]


async def test_the_error_of_a_failed_patch_names_the_request(config: Config) -> None:
    async def cut_connection(head: str, writer: asyncio.StreamWriter) -> None:
        raise ConnectionError

    async with Server(cut_connection).serving() as server, connected(config(server)) as api:
        with pytest.raises(ApiError, match="PATCH /api/v1/nodes/node-1: "):
            await api.patch("/api/v1/nodes/node-1", {})


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
async def test_a_redirected_patch_is_an_error(config: Config, code: int) -> None:
    """After 303 the client sends a GET; its response does not show whether the change was made."""

    async def redirect(head: str, writer: asyncio.StreamWriter) -> None:
        response = (
            says('{"kind": "Node"}') if "/there" in head else says("", code, "Location: /there")
        )
        await response(head, writer)

    async with Server(redirect).serving() as server, connected(config(server)) as api:
        with pytest.raises(ApiError, match="was redirected; set the address") as caught:
            await api.patch("/api/v1/nodes/node-1", {"metadata": {}})
        assert caught.value.status == 0
        assert await api.get("/api/v1/nodes/node-1", {}) == b'{"kind": "Node"}'


async def test_a_stream_yields_complete_lines_and_ends_when_the_server_ends_it(
    config: Config,
) -> None:
    respond = stream(b'{"a":1}\n{"b"', b":2}\n\n", b'{"c":3}\n')
    async with Server(respond).serving() as server, connected(config(server)) as api:
        assert await lines(api) == [b'{"a":1}', b'{"b":2}', b'{"c":3}']


async def test_an_object_larger_than_the_buffers_is_read_completely(config: Config) -> None:
    large = b'{"a":"' + b"x" * (5 << 20) + b'"}'
    respond = stream(large + b"\n")
    async with Server(respond).serving() as server, connected(config(server)) as api:
        assert await lines(api) == [large]


@pytest.mark.slow
async def test_an_object_over_the_size_limit_is_an_error(config: Config) -> None:
    respond = stream(*[b"x" * (1 << 20)] * 17)
    async with Server(respond).serving() as server, connected(config(server)) as api:
        assert "an object of over 16777216 bytes" in str(await error_of(api))


async def test_a_list_over_the_size_limit_is_an_error(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.kube.client._MAX_BODY_BYTES", 1 << 20)
    respond = stream(*[b"x" * (1 << 18)] * 5)
    async with Server(respond).serving() as server, connected(config(server)) as api:
        with pytest.raises(ApiError, match="more than 1048576 bytes"):
            await api.get(PODS, {})


@pytest.mark.parametrize(
    ("respond", "text", "reason"),
    [
        (stream(b'{"a":1}\n{"b"'), "ended the stream in the middle of an object", ""),
        (stream(b'{"a":1}\n', end=False), "stopped responding", "SocketTimeoutError"),
        (hang, "stopped responding", "SocketTimeoutError"),
    ],
)
async def test_an_interrupted_or_silent_stream_is_an_error(
    config: Config, respond: Responder, text: str, reason: str
) -> None:
    async with Server(respond).serving() as server, connected(config(server)) as api:
        error = await error_of(api, silence=0.1)
        assert str(error) == f"http://127.0.0.1:{server.port}: GET {PODS}: {text}"
        assert error.dedup_key == (0, reason or text)


async def test_a_connection_closed_by_the_server_is_an_error(config: Config) -> None:
    async def cut_connection(head: str, writer: asyncio.StreamWriter) -> None:
        await stream(b'{"a":1}\n{"b"', end=False)(head, writer)
        writer.transport.abort()

    async with Server(cut_connection).serving() as server, connected(config(server)) as api:
        error = await error_of(api)
        assert error.status == 0
        assert "Error" in str(error)


@pytest.mark.parametrize(
    "sent", [b"", b"HTTP/1.1 200", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: \x00\r\n\r\n"]
)
async def test_a_response_that_is_not_http_is_an_error(config: Config, sent: bytes) -> None:
    async def respond(head: str, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        await writer.drain()
        raise ConnectionError

    async with Server(respond).serving() as server, connected(config(server)) as api:
        with pytest.raises(ApiError) as caught:
            await api.get(PODS, {})
        assert caught.value.status == 0


async def test_a_refused_connection_is_an_error(config: Config) -> None:
    async with Server(hang).serving() as server:
        credentials = config(server)
    async with connected(credentials) as api:
        error = await error_of(api)
        assert error.dedup_key == (0, "ClientConnectorError ECONNREFUSED")
        text = str(error)
        assert f"GET {PODS}: ClientConnectorError: Cannot connect to host 127.0.0.1" in text
        assert text.endswith("; check that the server runs and that its address is correct")


async def test_the_same_fault_with_another_text_has_the_same_deduplication_key(
    config: Config,
) -> None:
    sent = iter(range(9))

    async def respond(head: str, writer: asyncio.StreamWriter) -> None:
        writer.write(f"nonsense {next(sent)}\r\n\r\n".encode())

    async with Server(respond).serving() as server, connected(config(server)) as api:
        errors = [await error_of(api) for _ in range(3)]
    assert len({str(error) for error in errors}) == 3
    assert len({error.dedup_key for error in errors}) == 1


@pytest.mark.parametrize("respond", [says("<html>busy</html>", 503), says("", 503)])
async def test_a_refusal_that_is_not_from_the_api_is_reported_with_its_status(
    config: Config, respond: Responder
) -> None:
    async with Server(respond).serving() as server, connected(config(server)) as api:
        error = await error_of(api)
        assert error.status == 503
        assert str(error).endswith("failed: 503 Service Unavailable")


async def test_reason_and_delay_are_read_from_a_status_object(config: Config) -> None:
    body = status(429, "TooManyRequests", "slow down", retryAfterSeconds=9)
    respond = says(str(body).replace("'", '"'), 429)
    async with Server(respond).serving() as server, connected(config(server)) as api:
        error = await error_of(api)
        assert (error.status, error.reason, error.retry_after) == (429, "TooManyRequests", 9)


async def test_a_very_long_refusal_is_truncated(config: Config) -> None:
    respond = says(b"x" * (1 << 20), 500)
    async with Server(respond).serving() as server, connected(config(server)) as api:
        assert (await error_of(api)).status == 500


async def test_closing_a_stream_closes_its_connection(config: Config) -> None:
    respond = stream(b'{"a":1}\n', end=False)
    async with Server(respond).serving() as server, connected(config(server)) as api:
        async with api.watch(PODS, {}, silence=5) as sent:
            assert await anext(sent) == b'{"a":1}'
        async with asyncio.timeout(5):
            while server.open:
                await asyncio.sleep(0.01)


async def test_after_a_cancelled_request_the_next_one_succeeds(config: Config) -> None:
    async with Server(hang).serving() as server, connected(config(server)) as api:
        task = asyncio.create_task(api.get(PODS, {}))
        async with asyncio.timeout(5):
            while not server.heads:
                await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        server.respond = says("{}")
        assert await api.get(PODS, {}) == b"{}"


async def test_secrets_are_not_in_errors_or_logs(
    config: Config, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    async with Server(says("", 401)).serving() as server, connected(config(server)) as api:
        error = await error_of(api)
    assert "sesame" not in str(error)
    assert "sesame" not in caplog.text
    assert str(tmp_path / "config") in str(error)


async def test_a_path_in_the_server_address_is_kept(tmp_path: Path) -> None:
    async with Server(says("{}")).serving() as server:
        address = f"http://127.0.0.1:{server.port}/k8s/clusters/c-1/"
        path = kubeconfig(tmp_path / "config", address, {"token": "x"})
        async with connected(KubeconfigFile(path)) as api:
            await api.get(PODS, {})
        assert server.heads[0].startswith(f"GET /k8s/clusters/c-1{PODS} ")


def server_at(folder: Path, address: str, **cluster: object) -> KubeconfigFile:
    return KubeconfigFile(kubeconfig(folder / "config", address, {"token": "sesame"}, **cluster))


# An address that is not loopback and yet reaches this machine.
HERE = "0.0.0.0"  # noqa: S104


@pytest.mark.parametrize(
    ("host", "no_proxy", "direct"),
    [
        (HERE, "", False),
        (HERE, "10.0.0.0/8", False),
        (HERE, "10.0.0.0/8,0.0.0.0/8", True),
        (HERE, HERE, True),
        ("127.0.0.1", "", True),
        ("localhost", "", True),
    ],
)
async def test_r16_networks_in_no_proxy_are_connected_to_directly(
    host: str, no_proxy: str, direct: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R16: addresses in a network of NO_PROXY, and loopback, are connected to directly."""
    async with (
        Server(says("of the server")).serving() as server,
        Server(says("of the proxy")).serving() as proxy,
    ):
        monkeypatch.setenv("HTTP_PROXY", f"http://u:p@127.0.0.1:{proxy.port}")
        monkeypatch.setenv("NO_PROXY", no_proxy)
        async with connected(server_at(tmp_path, f"http://{host}:{server.port}")) as api:
            for _ in range(2):
                body = await api.get(PODS, {})
                assert body == (b"of the server" if direct else b"of the proxy")
        heads = proxy.heads
    assert len(heads) == (0 if direct else 2)
    assert all(head.startswith(f"GET http://{host}:{server.port}{PODS} ") for head in heads)
    assert all("Proxy-Authorization: Basic dTpw\r\n" in head for head in heads)


async def test_r16_the_proxy_of_the_kubeconfig_takes_precedence_over_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R16: `proxy-url` takes precedence over the environment, as in kubectl."""
    monkeypatch.setenv("HTTP_PROXY", "socks5://proxy.invalid:1")
    async with Server(says("of the proxy")).serving() as proxy:
        own = {"proxy-url": f"http://127.0.0.1:{proxy.port}"}
        async with connected(server_at(tmp_path, "http://api.test", **own)) as api:
            assert await api.get(PODS, {}) == b"of the proxy"


async def test_r16_an_unusable_proxy_is_reported_with_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R16: the message names the variable, and does not contain the password in it."""
    monkeypatch.setenv("HTTP_PROXY", "socks5://u:secret@proxy.invalid:1")
    async with connected(server_at(tmp_path, "http://api.test")) as api:
        with pytest.raises(ApiError, match="the variable HTTP_PROXY sets a proxy") as caught:
            await api.get(PODS, {})
    assert "secret" not in str(caught.value)
