"""`/` and `/status` on real listeners, alone and in a whole podgpu."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from html import unescape
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

import pytest

from config.types import ListenAddress
from pipeline.contracts import HttpRequest, SourceContext
from pipeline.errors import PermanentError, TransientError
from pipeline.http import Listeners
from pipeline.model import DevicesDiscovered, Instant, SamplesTaken
from pipeline.runtime import Runtime
from pipeline.status_page.html.style import POLICY
from pipeline.status_page.known import Known
from pipeline.status_page.pages import GOOD_FOR_NS, StatusPages
from pipeline.telemetry import Meter, Telemetry
from pipeline.web import opened
from tests.pipeline.runtimes import holding, registered
from tests.pipeline.status_page.reading import read, table
from tests.pipeline.status_page.scenes import cut, troubled, two_gpus
from tests.support.components import KeepingSink, Registered, configured, never
from tests.support.http import LOCAL, Client, Clients, says
from tests.support.nodes import START, gpu, reading
from tests.support.web import LOG, basic, hashed

__all__ = ["registered"]


class Daemon:
    """What the pages ask."""

    def __init__(self, scene: Callable[[], Known] = two_gpus) -> None:
        self.known = scene()
        self.now = START
        self.asked = 0
        self.pages = StatusPages(lambda: self.now, self._known)
        well = (True, "ok")
        self.house = Listeners(
            node="node-1",
            version="0",
            health=lambda: well,
            ready=lambda: well,
            pages=self.pages.pages,
            front=self.pages.front,
        )

    def _known(self) -> Known:
        self.asked += 1
        return self.known

    def waits(self, ns: int) -> None:
        self.now = Instant(self.now.mono_ns + ns, self.now.wall_ns + ns)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Client]:
        async with self.house.listen(LOCAL) as mounts, Clients() as clients:
            self.port = mounts.port
            mounts.mount("/metrics", says("page"), title="metrics for Prometheus")
            yield await clients.connect(mounts.port)


async def headers_of(client: Client, path: str, method: str = "GET") -> dict[str, str]:
    client.send(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n")
    status, headers, _ = await client.answer(body=method != "HEAD")
    assert status == 200
    return headers


async def test_the_page_and_the_document_tell_the_same() -> None:
    async with Daemon(troubled).serving() as client:
        status, page = await client.get("/")
        assert status == 200
        _, text = await client.get("/status")
    told = json.loads(text)
    rows = table(read(page), "gpus")[1:]
    assert [row[0].split()[:2] for row in rows] == [
        ["GPU", str(card["index"])] for card in told["gpus"]
    ]
    for row, card in zip(rows, told["gpus"], strict=True):
        for holder in card["holders"]:
            assert f"{holder['namespace']}/{holder['pod']} ({holder['container']})" in row[5]
    assert [row[0].split()[0] for row in table(read(page), "parts")[1:]] == [
        source["name"] for source in told["sources"]
    ]


async def test_headers() -> None:
    async with Daemon().serving() as client:
        page = await headers_of(client, "/")
        assert page["content-type"] == "text/html; charset=utf-8"
        assert page["content-security-policy"] == POLICY
        assert page["x-content-type-options"] == "nosniff"
        assert page["cache-control"] == "no-store"
        assert page["refresh"] == "10"
        assert (await headers_of(client, "/?refresh=2"))["refresh"] == "2"
        assert "refresh" not in await headers_of(client, "/?refresh=0")
        document = await headers_of(client, "/status")
        assert document["content-type"] == "application/json"
        assert document["cache-control"] == "no-store"
        assert "refresh" not in document


@pytest.mark.parametrize("path", ["/", "/status"])
async def test_head_has_the_headers_of_get(path: str) -> None:
    async with Daemon().serving() as client:
        assert await headers_of(client, path, "HEAD") == await headers_of(client, path)
        status, body = await client.get(path, method="POST")
        assert status == 405
        assert body == "only GET and HEAD are served\n"


async def test_many_viewers_cost_what_one_does() -> None:
    daemon = Daemon(cut)
    async with daemon.serving() as client:
        first = [await client.get(path) for path in ("/", "/status", "/", "/?refresh=2")]
        assert first[0] == first[2]
        whole, often = (body.partition("<footer")[0] for _, body in (first[0], first[3]))
        assert whole == often
        assert "anew every 10 s" in first[0][1]
        assert "anew every 2 s" in first[3][1]
        assert daemon.asked == 1
        daemon.known = two_gpus()
        daemon.waits(GOOD_FOR_NS - 1)
        assert await client.get("/status") == first[1]
        daemon.waits(1)
        assert await client.get("/status") != first[1]
        assert await client.get("/") != first[0]
        assert daemon.asked == 2


class Held(dict[str, str]):
    """Sinks that can be looked at once that is allowed."""

    def __init__(self) -> None:
        super().__init__(metrics="prometheus")
        self.begun, self.allowed = threading.Event(), threading.Event()

    def items(self):  # type: ignore[no-untyped-def]
        self.begun.set()
        assert self.allowed.wait(10), "what is made keeps everybody waiting"
        return super().items()


PATHS = ["/", "/status"]


@pytest.mark.parametrize("path", PATHS)
async def test_while_it_is_made_others_are_served(path: str) -> None:
    daemon, held = Daemon(), Held()
    daemon.known = replace(daemon.known, sinks=held)
    async with daemon.serving() as first, Clients() as clients:
        second, third = [await clients.connect(daemon.port) for _ in range(2)]
        slow = [asyncio.create_task(client.get(path)) for client in (first, second)]
        await asyncio.to_thread(held.begun.wait, 10)
        assert (await third.get("/healthz"))[0] == 200
        assert not any(task.done() for task in slow)
        held.allowed.set()
        answers = [await task for task in slow]
    assert answers[0][0] == 200
    assert answers[0] == answers[1]
    assert daemon.asked == 1
    for thread in threading.enumerate():
        if thread.name == "podgpu-status":
            thread.join(10)
            assert not thread.is_alive(), "a thread stays, though nobody looks"


async def test_a_viewer_who_goes_away_takes_nothing_from_the_others() -> None:
    daemon, held = Daemon(), Held()
    daemon.known = replace(daemon.known, sinks=held)
    request = HttpRequest("GET", "/status", MappingProxyType({}), MappingProxyType({}))
    gone, stays = [asyncio.create_task(daemon.pages.show(request)) for _ in range(2)]
    await asyncio.to_thread(held.begun.wait, 10)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    held.allowed.set()
    assert json.loads((await stays).body)["node"] == "node-1"


async def test_what_changes_while_it_is_made_is_not_in_it() -> None:
    daemon, held = Daemon(), Held()
    telemetry = Telemetry()
    meter = Meter(telemetry, "sink", "metrics")
    meter.trouble("the first", START)
    daemon.known = replace(daemon.known, sinks=held, troubles=telemetry.troubles)
    async with daemon.serving() as client:
        slow = asyncio.create_task(client.get("/status"))
        await asyncio.to_thread(held.begun.wait, 10)
        meter.trouble("the second", START)
        held.allowed.set()
        _, text = await slow
    assert json.loads(text)["sinks"][0]["error"]["text"] == "the first"


async def test_nothing_is_made_while_nobody_looks() -> None:
    daemon = Daemon()
    async with daemon.serving() as client:
        assert await client.get("/metrics") == (200, "page")
        assert await client.get("/healthz") == (200, "ok\n")
    assert daemon.asked == 0


async def test_each_listener_links_what_it_serves() -> None:
    daemon = Daemon()
    other = ListenAddress("::1", 0)
    async with daemon.serving() as client, daemon.house.listen(other) as mounts:
        mounts.mount("/another", says(""), title="elsewhere")
        _, page = await client.get("/")
        reader, writer = await asyncio.open_connection("::1", mounts.port)
        _, elsewhere = await Client(reader, writer).get("/")
        writer.transport.abort()
    assert ("./metrics" in page, "./another" in page) == (True, False)
    assert ("./metrics" in elsewhere, "./another" in elsewhere) == (False, True)


@pytest.mark.parametrize("path", ["/", "/status", "/?refresh=2"])
async def test_a_password_keeps_both_from_others(path: str, tmp_path: Path) -> None:
    web = tmp_path / "web.yml"
    web.write_text(f"basic_auth_users: {{alice: {hashed('secret')}}}\n")
    daemon = Daemon()
    daemon.house.access = await opened(web, LOG)
    async with daemon.serving() as client:
        assert (await client.get(path))[0] == 401
        assert daemon.asked == 0
        assert (await client.get(path, basic("alice", "secret")))[0] == 200
    daemon.house.access.close()


# In a whole podgpu.


async def discovering(ctx: SourceContext) -> None:
    await ctx.emit(DevicesDiscovered((gpu(0), gpu(1))))
    now = ctx.clock.now()
    await ctx.emit(SamplesTaken((reading(gpu(0), "gpu_up", 1, when=now, good_for=60),), ()))
    await never()


@asynccontextmanager
async def running(
    registered: Registered, sources: list[str], sinks: list[str]
) -> AsyncIterator[Client]:
    config = configured({name: (name, 0) for name in sources}, {name: (name, 0) for name in sinks})
    runtime, stop = Runtime(config), asyncio.Event()
    task = asyncio.create_task(runtime.run(stop))
    try:
        async with runtime._serving.listen(LOCAL) as mounts, Clients() as clients:
            mounts.mount("/a b/ü%", says("here"), title="a path that has to be escaped")
            yield await clients.connect(mounts.port)
    finally:
        stop.set()
        await task


async def told(client: Client, wanted: Callable[[Any], bool]) -> Any:
    """Ask until the document is as it is wanted."""
    async with asyncio.timeout(20):
        while True:
            status, text = await client.get("/status")
            assert status == 200
            document = json.loads(text)
            if wanted(document):
                return document
            await asyncio.sleep(0.1)


async def test_a_whole_podgpu(registered: Registered) -> None:
    registered.sources = {"gpus": discovering, "holders": holding("train-0")}
    async with running(registered, ["gpus", "holders"], ["keep"]) as client:
        found = await told(client, lambda d: d["gpus"] and d["gpus"][0]["holders"])
        assert found["node"] == "node-1"
        assert found["ready"]
        assert [card["state"] for card in found["gpus"]] == ["up", "unknown"]
        assert found["gpus"][0]["holders"][0]["pod"] == "train-0"
        assert found["gpus"][0]["holders"][0]["source"] == "holders"
        assert [source["state"] for source in found["sources"]] == ["up", "up"]
        assert [(sink["name"], sink["kind"], sink["up"]) for sink in found["sinks"]] == [
            ("keep", "keep", True)
        ]


async def test_every_link_leads_somewhere(registered: Registered) -> None:
    registered.sources = {"gpus": discovering}
    async with running(registered, ["gpus"], ["keep"]) as client:
        await told(client, lambda d: d["gpus"])
        _, page = await client.get("/")
        found = read(page)
        hrefs = {anchor.attributes["href"] or "" for anchor in found.all("a")}
        paths = {unquote(unescape(href)[1:]) for href in hrefs}
        wanted = {"/a b/ü%", "/status", "/topology", "/healthz", "/readyz"}
        assert wanted <= paths
        # No source here tells how the GPUs are joined, and the best ones need a question.
        others = {"./topology": 404, "./topology/best": 400}
        for href in hrefs:
            assert ((await client.get(href[1:]))[0], href) == (others.get(href, 200), href)


async def test_why_a_source_can_t_work_is_told(registered: Registered) -> None:
    async def fails(ctx: SourceContext) -> None:
        raise TransientError("no socket at /run/x.sock; mount it", retry_after=60)

    registered.sources = {"gpus": discovering, "fails": fails}
    async with running(registered, ["gpus", "fails"], ["keep"]) as client:
        found = await told(client, lambda d: d["sources"][1:] and d["sources"][1]["error"])
        source = found["sources"][1]
        assert (source["state"], source["restarts"]) == ("down", 1)
        assert source["error"]["text"] == "no socket at /run/x.sock; mount it"
        assert not source["error"]["over"]
        assert source["error"]["age_seconds"] < 60


async def test_what_a_source_got_over_is_told_too(registered: Registered) -> None:
    failed: list[None] = []

    async def fails_once(ctx: SourceContext) -> None:
        if not failed:
            failed.append(None)
            raise TransientError("not yet")
        await discovering(ctx)

    registered.sources = {"gpus": fails_once}
    async with running(registered, ["gpus"], ["keep"]) as client:
        found = await told(client, lambda d: d["gpus"])
        [source] = found["sources"]
        assert (source["state"], source["restarts"]) == ("up", 1)
        assert (source["error"]["text"], source["error"]["over"]) == ("not yet", True)


@pytest.mark.parametrize("error", [TransientError("the disk is full"), PermanentError("no path")])
async def test_why_a_sink_can_t_work_is_told(registered: Registered, error: Exception) -> None:
    registered.sources = {"gpus": discovering}
    keep = registered.sinks["keep"]
    assert isinstance(keep, KeepingSink)
    keep.run_failures = [error]
    keep.failures = [TransientError("still so"), None]
    async with running(registered, ["gpus"], ["keep"]) as client:
        found = await told(client, lambda d: d["sinks"][0]["error"])
        [sink] = found["sinks"]
        assert not sink["up"]
        assert sink["error"]["text"] == str(error)
        assert not sink["error"]["over"]


async def test_when_a_sink_lost_something_is_known_though_nobody_looked(
    registered: Registered,
) -> None:
    flooded = asyncio.Event()

    async def floods(ctx: SourceContext) -> None:
        card = gpu(0)
        await ctx.emit(DevicesDiscovered((card,)))
        for watts in range(100):
            await ctx.emit(SamplesTaken((reading(card, "power_watts", watts, when=START),)))
            await asyncio.sleep(0.001)
        flooded.set()
        await never()

    registered.sources = {"gpus": floods}
    keep = registered.sinks["keep"]
    assert isinstance(keep, KeepingSink)
    keep.gate.clear()
    async with running(registered, ["gpus"], ["keep"]) as client:
        async with asyncio.timeout(20):
            await flooded.wait()
        keep.gate.set()
        found = await told(client, lambda d: d["sinks"][0]["dropped"])
        assert 0 <= found["sinks"][0]["lost_seconds"] < 60


async def test_a_sink_that_can_t_be_entered_at_the_start(registered: Registered) -> None:
    registered.sources = {"gpus": discovering}
    keep = registered.sinks["keep"]
    assert isinstance(keep, KeepingSink)
    keep.failures = [TransientError("later"), TransientError("not yet")]
    async with running(registered, ["gpus"], ["keep"]) as client:
        found = await told(client, lambda d: d["sinks"] and d["sinks"][0]["error"])
        assert found["sinks"][0]["error"]["text"] in {"not yet", "later"}
        assert found["sinks"][0]["up"] is False


def test_a_known_moment_is_what_ages_count_from() -> None:
    known = two_gpus()
    assert known.age(None) is None
    assert known.age(known.now) == 0
    assert replace(known, now=START).age(known.now) == 0
