"""The whole extender over real HTTP, as the scheduler, Prometheus and the API server use it."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from config.value_types import ListenAddress
from pipeline.base.clock import SystemClock
from pipeline.base.errors import PermanentError
from podgpu.extender.server import BODY_BYTES, Extender, Settings
from tests.pipeline.topology.layouts import hgx, pcie
from tests.podgpu.extender.cluster import annotation_with, node, pod, question
from tests.support.http import LOCAL, Client, Clients
from tests.support.kube import ApiServer, Collection, status
from tests.support.web import basic, certificate, client_context, hashed, pem

NODES = "/api/v1/nodes"
SOON = 20.0


class Running:
    """A running extender with its API server and the cluster's nodes."""

    def __init__(self, api: ApiServer, nodes: Collection, extender: Extender) -> None:
        self.api = api
        self.nodes = nodes
        self.extender = extender
        self.clients = Clients()

    async def connect(self) -> Client:
        return await self.clients.connect(self.extender.port)

    async def get(self, path: str) -> tuple[int, str]:
        return await (await self.connect()).get(path)

    async def post(self, path: str, body: bytes, *lines: str) -> tuple[int, bytes]:
        client = await self.connect()
        head = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *lines, "", ""]
        client.send("\r\n".join(head).encode() + body)
        code, _, sent = await client.answer()
        return code, sent

    async def request(self, path: str, body: bytes) -> Any:
        code, sent = await self.post(path, body)
        assert code == 200, sent
        return json.loads(sent)

    async def until(self, path: str, expected: str) -> None:
        """Repeat a GET request until the response contains a text."""
        async with asyncio.timeout(SOON):
            while expected not in (await self.get(path))[1]:
                await asyncio.sleep(0.02)

    async def ready(self) -> None:
        async with asyncio.timeout(SOON):
            while (await self.get("/readyz"))[0] != 200:
                await asyncio.sleep(0.02)


class FastClock(SystemClock):
    """A clock with short waits between attempts."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.05))


@asynccontextmanager
async def running(
    folder: Path, *, api_there: bool = True, **settings: Any
) -> AsyncIterator[Running]:
    nodes = Collection()
    now = SystemClock().now().wall_ns / 1e9
    nodes.put(node("switched", annotation_with(hgx(), 0b1111, at=now), gpus="8"))
    nodes.put(node("plain", annotation_with(pcie(), 0xFF, at=now), gpus="8"))
    nodes.put(node("old", annotation_with(hgx(), 0xFF, at=now - 1000), gpus="8"))
    nodes.put(node("broken", "nonsense"))
    nodes.put(node("silent"))
    api = ApiServer({NODES: nodes})
    if not api_there:
        api.refusals[NODES] = status(500, "InternalError", "not now")
    stop = asyncio.Event()
    async with api.serving():
        made = replace(Settings(LOCAL, api.kubeconfig(folder / "kubeconfig")), **settings)
        extender = Extender(made, clock=FastClock())
        task = asyncio.create_task(extender.run(stop))
        found = Running(api, nodes, extender)
        async with asyncio.timeout(SOON):
            while not extender.port and not task.done():
                await asyncio.sleep(0.01)
        try:
            async with found.clients:
                if not task.done():
                    yield found
        finally:
            stop.set()
            async with asyncio.timeout(SOON):
                await task


NAMES = ["switched", "plain", "old", "broken", "silent", "unheard-of"]


@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, True])
async def test_filter_and_prioritize_requests_of_the_scheduler(whole: bool, tmp_path: Path) -> None:
    async with running(tmp_path) as one:
        await one.ready()
        forms: dict[str, Any] = (
            {"nodes": [node(name) for name in NAMES]} if whole else {"names": NAMES}
        )
        answer = await one.request("/filter", question(pod(gpus="5"), **forms))
        passed = (
            [item["metadata"]["name"] for item in answer["Nodes"]["items"]]
            if whole
            else answer["NodeNames"]
        )
        assert passed == NAMES[1:]
        assert answer["FailedNodes"] == {
            "switched": "podgpu: 4 of 8 GPUs are free, the pod requests 5"
        }
        scores = await one.request("/prioritize", question(pod(gpus="4"), **forms))
        assert scores == [
            {"Host": "switched", "Score": 10},
            *({"Host": name, "Score": 0} for name in NAMES[1:]),
        ]


async def test_a_change_of_a_node_takes_effect(tmp_path: Path) -> None:
    async with running(tmp_path) as one:
        await one.ready()
        body = question(pod(gpus="2", require="nvlink"), names=["switched"])
        assert (await one.request("/filter", body))["NodeNames"] == ["switched"]
        now = SystemClock().now().wall_ns / 1e9
        one.nodes.put(node("switched", annotation_with(hgx(), 0b1, at=now)))
        async with asyncio.timeout(SOON):
            while (answer := await one.request("/filter", body))["NodeNames"]:
                await asyncio.sleep(0.02)
        assert answer["FailedNodes"] == {
            "switched": "podgpu: no NVLink group of the node has 2 free GPUs, the most is 1"
        }


@pytest.mark.slow
async def test_the_extender_is_ready_after_the_first_list_of_nodes(tmp_path: Path) -> None:
    async with running(tmp_path, api_there=False) as one:
        assert await one.get("/healthz") == (200, "ok\n")
        assert await one.get("/readyz") == (503, "the cluster's nodes are not known yet\n")
        answer = await one.request("/filter", question(pod(gpus="5"), names=["switched"]))
        assert answer["NodeNames"] == ["switched"], "no known fact excludes the node"
        required = question(pod(gpus="2", require="nvlink"), names=["switched"])
        assert (await one.request("/filter", required))["FailedNodes"] == {
            "switched": "podgpu: the extender has not listed the nodes of the cluster yet, and the "
            "pod requires nvlink"
        }
        one.api.refusals.clear()
        await one.ready()
        # The API server goes away; the known nodes stay in use.
        one.api.refusals[NODES] = status(403, "Forbidden", "not any more")
        one.api.hang_up()
        await one.until("/metrics", "podgpu_extender_up 0\n")
        assert (await one.get("/readyz"))[0] == 200
        answer = await one.request("/filter", question(pod(gpus="5"), names=["switched"]))
        assert answer["NodeNames"] == []
        one.api.refusals.clear()
        await one.until("/metrics", "podgpu_extender_up 1\n")


@pytest.mark.slow
async def test_the_extender_waits_for_missing_credentials(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    missing = tmp_path / "later"
    async with running(tmp_path, kubeconfig=missing) as one:
        async with asyncio.timeout(SOON):
            while not caplog.records:
                await asyncio.sleep(0.02)
        assert (await one.get("/readyz"))[0] == 503
        await asyncio.sleep(0.3)  # so that it tries several times
        await asyncio.to_thread(one.api.kubeconfig, missing)
        await one.ready()
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len([1 for record in warnings if str(missing) in record.getMessage()]) == 1


async def test_messages_name_the_options_of_the_command(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    async with running(tmp_path, kubeconfig=None):
        async with asyncio.timeout(SOON):
            while "no service account credentials" not in caplog.text:
                await asyncio.sleep(0.02)
    [message] = [text for text in caplog.messages if "no service account credentials" in text]
    assert message.endswith("run podgpu in a pod with a service account, or give --kubeconfig")
    wrong = tmp_path / "web.yml"
    wrong.write_text("nonsense: 1")
    with pytest.raises(PermanentError) as caught:
        async with running(tmp_path, web_config=wrong):
            pass
    assert str(caught.value).startswith(f"--web-config: {wrong}")


async def test_metrics_and_index_page_of_the_extender(tmp_path: Path) -> None:
    async with running(tmp_path) as one:
        await one.ready()
        await one.request("/filter", question(pod(gpus="1"), names=NAMES))
        await one.request("/filter", question(pod(gpus="1"), names=NAMES))
        await one.post("/prioritize", b"nonsense")
        assert (await one.post("/prioritize", b"x", "Content-Encoding: gzip"))[0] == 415
        code, page = await one.get("/metrics")
        assert code == 200
        for expected in (
            'podgpu_extender_nodes{state="fresh"} 2',
            'podgpu_extender_nodes{state="stale"} 1',
            'podgpu_extender_nodes{state="unreadable"} 1',
            'podgpu_extender_nodes{state="none"} 1',
            'podgpu_extender_nodes{state="no_free"} 0',
            'podgpu_extender_requests_total{verb="prioritize",result="encoded"} 1',
            "podgpu_extender_up 1",
            'podgpu_extender_requests_total{verb="filter",result="ok"} 2',
            'podgpu_extender_requests_total{verb="prioritize",result="malformed"} 1',
            'podgpu_extender_requests_total{verb="prioritize",result="timeout"} 0',
            'podgpu_extender_request_duration_seconds_count{verb="filter"} 2',
            "# TYPE podgpu_extender_request_duration_seconds summary",
        ):
            assert f"{expected}\n" in page
        assert "process_resident_memory_bytes" in page
        index = await one.get("/")
        assert index[0] == 200
        assert "/prioritize" in index[1]


async def test_other_annotation_keys_and_resources_can_be_configured(tmp_path: Path) -> None:
    async with running(tmp_path, annotation="example.com/t", resources=("example.com/gpu",)) as one:
        await one.ready()
        own = node("own", gpus=8)
        own["metadata"]["annotations"]["example.com/t"] = annotation_with(
            hgx(), 0b1, at=SystemClock().now().wall_ns / 1e9
        )
        one.nodes.put(own)
        await one.until("/metrics", 'podgpu_extender_nodes{state="fresh"} 1\n')
        asks = {"resources": {"limits": {"example.com/gpu": "2"}}}
        answer = await one.request("/filter", question(pod(asks), names=["own", "switched"]))
        assert answer["NodeNames"] == ["switched"]
        answer = await one.request("/filter", question(pod(gpus="2"), names=["own"]))
        assert answer["NodeNames"] == ["own"], "the extender ignores other resources"


@pytest.mark.parametrize("path", ["/filter", "/prioritize"])
async def test_other_methods_long_bodies_and_malformed_bodies_are_refused(
    path: str, tmp_path: Path
) -> None:
    async with running(tmp_path) as one:
        client = await one.connect()
        client.send(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")
        code, headers, _ = await client.answer()
        assert (code, headers["allow"]) == (405, "POST")
        announced = await one.connect()
        length = f"Content-Length: {BODY_BYTES + 1}"
        announced.send(f"POST {path} HTTP/1.1\r\nHost: x\r\n{length}\r\n\r\n")
        assert (await announced.answer())[0] == 413
        assert f'{{verb="{path[1:]}",result="too_long"}} 1\n' in (await one.get("/metrics"))[1]
        for body in (b"", b"\x00", b"[" * 100_000, b'{"Pod":' * 10_000, question([], names=[])):  # type: ignore[arg-type]
            code, sent = await one.post(path, body)
            assert code == (200 if path == "/filter" else 400)
            if path == "/filter":
                assert json.loads(sent)["Error"].startswith("podgpu: ")
        assert (await one.post("/metrics", b"x"))[0] == 405


async def test_slow_clients_do_not_delay_others(tmp_path: Path) -> None:
    async with running(tmp_path) as one:
        await one.ready()
        for _ in range(50):
            slow = await one.connect()
            slow.send(b'POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"Pod"')
        answer = await one.request("/filter", question(pod(gpus="1"), names=["plain"]))
        assert answer["NodeNames"] == ["plain"]


@pytest.mark.slow
async def test_clients_need_tls_and_the_password(tmp_path: Path) -> None:
    chain, key = pem(certificate("server", "127.0.0.1"))
    (tmp_path / "tls.crt").write_bytes(chain)
    (tmp_path / "tls.key").write_bytes(key)
    web = tmp_path / "web.yml"
    web.write_text(
        "tls_server_config: {cert_file: tls.crt, key_file: tls.key}\n"
        f"basic_auth_users: {{scheduler: '{hashed('secret')}'}}\n"
    )
    async with running(tmp_path, web_config=web) as one:
        client = await one.clients.connect(one.extender.port, client_context())
        assert (await client.get("/readyz"))[0] in {200, 503}, "a probe needs no password"
        body = question(pod(gpus="1"), names=["plain"])
        head = f"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        client.send(f"{head}{basic('scheduler', 'secret')}\r\n\r\n".encode() + body)
        code, _, sent = await client.answer()
        assert (code, json.loads(sent)["NodeNames"]) == (200, ["plain"])
        stranger = await one.clients.connect(one.extender.port, client_context())
        stranger.send(f"{head}\r\n".encode() + body)
        assert (await stranger.answer())[0] == 401


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"listen": ListenAddress("192.0.2.1", 1)}, "this machine has no such address"),
        ({"web_config": Path("/nowhere/web.yml")}, "/nowhere/web.yml"),
    ],
)
async def test_an_unusable_setting_ends_the_extender(
    settings: dict[str, Any], why: str, tmp_path: Path
) -> None:
    with pytest.raises(PermanentError, match=why):
        await Extender(replace(Settings(LOCAL, tmp_path / "k"), **settings)).run(asyncio.Event())


async def test_an_unexpected_exception_ends_the_extender(tmp_path: Path) -> None:
    @asynccontextmanager
    async def broken(_: Path | None) -> AsyncIterator[Any]:
        raise KeyError("a bug")
        yield

    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.timeout(SOON):
            await Extender(Settings(LOCAL), kube=broken).run(asyncio.Event())
    assert caught.group_contains(KeyError)
