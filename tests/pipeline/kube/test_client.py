"""Requests and streams, over real connections."""

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.base.errors import ApiError
from pipeline.component.contracts import KubeApi
from pipeline.kube.credentials import KubeconfigFile
from tests.pipeline.kube.conftest import Answer, Server, connected, hangs, kubeconfig, says, streams
from tests.support.kube import status

PODS = "/api/v1/pods"
Config = Callable[[Server], KubeconfigFile]


async def lines(api: KubeApi, silence: float = 5) -> list[bytes]:
    async with api.watch(PODS, {"watch": "true"}, silence=silence) as sent:
        return [line async for line in sent]


async def failing(api: KubeApi, silence: float = 5) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await lines(api, silence)
    return caught.value


async def test_a_request_has_its_parameters_and_our_credentials(config: Config) -> None:
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


async def test_what_fails_of_a_patch_says_so(config: Config) -> None:
    async def cuts(head: str, writer: asyncio.StreamWriter) -> None:
        raise ConnectionError

    async with Server(cuts).serving() as server, connected(config(server)) as api:
        with pytest.raises(ApiError, match="PATCH /api/v1/nodes/node-1: "):
            await api.patch("/api/v1/nodes/node-1", {})


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
async def test_a_patch_that_was_redirected_was_not_made(config: Config, code: int) -> None:
    """After 303 it is a GET, whose answer says nothing of the change."""

    async def elsewhere(head: str, writer: asyncio.StreamWriter) -> None:
        there = says('{"kind": "Node"}') if "/there" in head else says("", code, "Location: /there")
        await there(head, writer)

    async with Server(elsewhere).serving() as server, connected(config(server)) as api:
        with pytest.raises(ApiError, match="was redirected; set the address") as caught:
            await api.patch("/api/v1/nodes/node-1", {"metadata": {}})
        assert caught.value.status == 0
        assert await api.get("/api/v1/nodes/node-1", {}) == b'{"kind": "Node"}'


async def test_a_stream_gives_lines_as_they_come_and_ends_with_the_server(config: Config) -> None:
    answer = streams(b'{"a":1}\n{"b"', b":2}\n\n", b'{"c":3}\n')
    async with Server(answer).serving() as server, connected(config(server)) as api:
        assert await lines(api) == [b'{"a":1}', b'{"b":2}', b'{"c":3}']


async def test_an_object_larger_than_any_buffer_comes_whole(config: Config) -> None:
    large = b'{"a":"' + b"x" * (5 << 20) + b'"}'
    answer = streams(large + b"\n")
    async with Server(answer).serving() as server, connected(config(server)) as api:
        assert await lines(api) == [large]


async def test_an_object_without_an_end_is_not_kept(config: Config) -> None:
    answer = streams(*[b"x" * (1 << 20)] * 17)
    async with Server(answer).serving() as server, connected(config(server)) as api:
        assert "an object of over 16777216 bytes" in str(await failing(api))


async def test_a_list_without_an_end_is_not_kept(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.kube.client._MAX_BODY_BYTES", 1 << 20)
    answer = streams(*[b"x" * (1 << 18)] * 5)
    async with Server(answer).serving() as server, connected(config(server)) as api:
        with pytest.raises(ApiError, match="more than 1048576 bytes"):
            await api.get(PODS, {})


@pytest.mark.parametrize(
    ("answer", "text", "reason"),
    [
        (streams(b'{"a":1}\n{"b"'), "ended the stream in the middle of an object", ""),
        (streams(b'{"a":1}\n', end=False), "stopped responding", "SocketTimeoutError"),
        (hangs, "stopped responding", "SocketTimeoutError"),
    ],
)
async def test_a_stream_that_breaks_is_an_error(
    config: Config, answer: Answer, text: str, reason: str
) -> None:
    async with Server(answer).serving() as server, connected(config(server)) as api:
        error = await failing(api, silence=0.1)
        assert str(error) == f"http://127.0.0.1:{server.port}: GET {PODS}: {text}"
        assert error.dedup_key == (0, reason or text)


async def test_a_connection_that_is_cut_is_an_error(config: Config) -> None:
    async def cuts(head: str, writer: asyncio.StreamWriter) -> None:
        await streams(b'{"a":1}\n{"b"', end=False)(head, writer)
        writer.transport.abort()

    async with Server(cuts).serving() as server, connected(config(server)) as api:
        error = await failing(api)
        assert error.status == 0
        assert "Error" in str(error)


@pytest.mark.parametrize(
    "sent", [b"", b"HTTP/1.1 200", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: \x00\r\n\r\n"]
)
async def test_what_is_no_http_is_an_error(config: Config, sent: bytes) -> None:
    async def answers(head: str, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        await writer.drain()
        raise ConnectionError

    async with Server(answers).serving() as server, connected(config(server)) as api:
        with pytest.raises(ApiError) as caught:
            await api.get(PODS, {})
        assert caught.value.status == 0


async def test_no_one_there_is_an_error(config: Config) -> None:
    async with Server(hangs).serving() as server:
        credentials = config(server)
    async with connected(credentials) as api:
        error = await failing(api)
        assert error.dedup_key == (0, "ClientConnectorError ECONNREFUSED")
        text = str(error)
        assert f"GET {PODS}: ClientConnectorError: Cannot connect to host 127.0.0.1" in text
        assert text.endswith("; check that the server runs and that its address is correct")


async def test_a_fault_is_the_same_in_other_words(config: Config) -> None:
    sent = iter(range(9))

    async def answers(head: str, writer: asyncio.StreamWriter) -> None:
        writer.write(f"nonsense {next(sent)}\r\n\r\n".encode())

    async with Server(answers).serving() as server, connected(config(server)) as api:
        errors = [await failing(api) for _ in range(3)]
    assert len({str(error) for error in errors}) == 3
    assert len({error.dedup_key for error in errors}) == 1


@pytest.mark.parametrize("answer", [says("<html>busy</html>", 503), says("", 503)])
async def test_what_is_not_from_the_api_is_reported_by_its_status(
    config: Config, answer: Answer
) -> None:
    async with Server(answer).serving() as server, connected(config(server)) as api:
        error = await failing(api)
        assert error.status == 503
        assert str(error).endswith("failed: 503 Service Unavailable")


async def test_a_status_object_gives_reason_and_delay(config: Config) -> None:
    given_out = status(429, "TooManyRequests", "slow down", retryAfterSeconds=9)
    answer = says(str(given_out).replace("'", '"'), 429)
    async with Server(answer).serving() as server, connected(config(server)) as api:
        error = await failing(api)
        assert (error.status, error.reason, error.retry_after) == (429, "TooManyRequests", 9)


async def test_an_endless_refusal_is_cut(config: Config) -> None:
    answer = says(b"x" * (1 << 20), 500)
    async with Server(answer).serving() as server, connected(config(server)) as api:
        assert (await failing(api)).status == 500


async def test_leaving_a_stream_ends_its_connection(config: Config) -> None:
    continues = streams(b'{"a":1}\n', end=False)
    async with Server(continues).serving() as server, connected(config(server)) as api:
        async with api.watch(PODS, {}, silence=5) as sent:
            assert await anext(sent) == b'{"a":1}'
        async with asyncio.timeout(5):
            while server.open:
                await asyncio.sleep(0.01)


async def test_a_cancelled_request_leaves_nothing_behind(config: Config) -> None:
    async with Server(hangs).serving() as server, connected(config(server)) as api:
        task = asyncio.create_task(api.get(PODS, {}))
        async with asyncio.timeout(5):
            while not server.heads:
                await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        server.answer = says("{}")
        assert await api.get(PODS, {}) == b"{}"


async def test_secrets_are_in_no_text(
    config: Config, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    async with Server(says("", 401)).serving() as server, connected(config(server)) as api:
        error = await failing(api)
    assert "sesame" not in str(error)
    assert "sesame" not in caplog.text
    assert str(tmp_path / "config") in str(error)


async def test_an_address_with_a_path_before_the_api_is_kept(tmp_path: Path) -> None:
    async with Server(says("{}")).serving() as server:
        address = f"http://127.0.0.1:{server.port}/k8s/clusters/c-1/"
        path = kubeconfig(tmp_path / "config", address, {"token": "x"})
        async with connected(KubeconfigFile(path)) as api:
            await api.get(PODS, {})
        assert server.heads[0].startswith(f"GET /k8s/clusters/c-1{PODS} ")


def at(folder: Path, address: str, **cluster: object) -> KubeconfigFile:
    return KubeconfigFile(kubeconfig(folder / "config", address, {"token": "sesame"}, **cluster))


# An address that isn't loopback and yet reaches this machine.
HERE = "0.0.0.0"  # noqa: S104


@pytest.mark.parametrize(
    ("host", "without", "direct"),
    [
        (HERE, "", False),
        (HERE, "10.0.0.0/8", False),
        (HERE, "10.0.0.0/8,0.0.0.0/8", True),
        (HERE, HERE, True),
        ("127.0.0.1", "", True),
        ("localhost", "", True),
    ],
)
async def test_r16_networks_of_no_proxy_hold_for_the_api_server(
    host: str, without: str, direct: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R16: an address in a network of NO_PROXY, and loopback, are asked directly."""
    async with (
        Server(says("of the server")).serving() as server,
        Server(says("of the proxy")).serving() as proxy,
    ):
        monkeypatch.setenv("HTTP_PROXY", f"http://u:p@127.0.0.1:{proxy.port}")
        monkeypatch.setenv("NO_PROXY", without)
        async with connected(at(tmp_path, f"http://{host}:{server.port}")) as api:
            for _ in range(2):
                body = await api.get(PODS, {})
                assert body == (b"of the server" if direct else b"of the proxy")
        heads = proxy.heads
    assert len(heads) == (0 if direct else 2)
    assert all(head.startswith(f"GET http://{host}:{server.port}{PODS} ") for head in heads)
    assert all("Proxy-Authorization: Basic dTpw\r\n" in head for head in heads)


async def test_r16_the_kubeconfigs_own_proxy_holds_whatever_the_variables_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R16: `proxy-url` goes before the environment, as in kubectl."""
    monkeypatch.setenv("HTTP_PROXY", "socks5://nobody:1")
    async with Server(says("of the proxy")).serving() as proxy:
        own = {"proxy-url": f"http://127.0.0.1:{proxy.port}"}
        async with connected(at(tmp_path, "http://api.test", **own)) as api:
            assert await api.get(PODS, {}) == b"of the proxy"


async def test_r16_a_proxy_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R16: the message names the variable, and not the password in it."""
    monkeypatch.setenv("HTTP_PROXY", "socks5://u:secret@nobody:1")
    async with connected(at(tmp_path, "http://api.test")) as api:
        with pytest.raises(ApiError, match="the variable HTTP_PROXY sets a proxy") as caught:
            await api.get(PODS, {})
    assert "secret" not in str(caught.value)
