"""`/` and `/status` on real listeners, alone and in a whole podgpu."""

import asyncio
import gc
import json
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from config.value_types import ListenAddress
from pipeline.base.telemetry import Meter, Telemetry
from pipeline.component.contracts import HttpRequest
from pipeline.http.access import open_access
from pipeline.http.listener_registry import Listeners
from pipeline.model import Instant
from pipeline.status_page.daemon_state import StatusInput
from pipeline.status_page.endpoints import GOOD_FOR_NS, StatusPages
from pipeline.status_page.html.style import POLICY
from tests.pipeline.status_page.reading import read, table
from tests.pipeline.status_page.scenes import cut, troubled, two_gpus
from tests.support.http import LOCAL, Client, Clients, says
from tests.support.nodes import START
from tests.support.web import LOG, basic, hashed


class Daemon:
    """What the pages ask."""

    def __init__(self, scene: Callable[[], StatusInput] = two_gpus) -> None:
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
            front_page=self.pages.front,
        )

    def _known(self) -> StatusInput:
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


async def test_the_page_and_the_document_report_the_same() -> None:
    async with Daemon(troubled).serving() as client:
        status, page = await client.get("/")
        assert status == 200
        _, text = await client.get("/status")
    given_out = json.loads(text)
    rows = table(read(page), "gpus")[1:]
    assert [row[0].split()[:2] for row in rows] == [
        ["GPU", str(card["index"])] for card in given_out["gpus"]
    ]
    for row, card in zip(rows, given_out["gpus"], strict=True):
        for holder in card["holders"]:
            assert f"{holder['namespace']}/{holder['pod']} ({holder['container']})" in row[5]
    assert [row[0].split()[0] for row in table(read(page), "parts")[1:]] == [
        source["name"] for source in given_out["sources"]
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
        assert body == "only GET and HEAD are allowed\n"


async def test_many_viewers_cost_what_one_does() -> None:
    daemon = Daemon(cut)
    async with daemon.serving() as client:
        first = [await client.get(path) for path in ("/", "/status", "/", "/?refresh=2")]
        assert first[0] == first[2]
        whole, often = (body.partition("<footer")[0] for _, body in (first[0], first[3]))
        assert whole == often
        assert "Reloads every 10 s" in first[0][1]
        assert "Reloads every 2 s" in first[3][1]
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


async def test_where_making_it_takes_long_nothing_further_is_begun() -> None:
    daemon, held = Daemon(), Held()
    daemon.known = replace(daemon.known, sinks=held)
    request = HttpRequest("GET", "/status", MappingProxyType({}), MappingProxyType({}))
    slow = []
    for second in range(3):
        daemon.now = Instant(START.mono_ns + second * GOOD_FOR_NS, START.wall_ns)
        slow.append(asyncio.create_task(daemon.pages.show(request)))
        await asyncio.to_thread(held.begun.wait, 10)
    assert daemon.asked == 1
    held.allowed.set()
    await asyncio.gather(*slow)
    daemon.now = Instant(START.mono_ns + 3 * GOOD_FOR_NS, START.wall_ns)
    await daemon.pages.show(request)
    assert daemon.asked == 2


async def test_what_it_was_made_of_is_not_kept() -> None:
    daemon = Daemon()
    shown = daemon.known.snapshot
    assert shown is not None
    daemon.known = replace(daemon.known, snapshot=replace(shown))
    assert daemon.known.snapshot is not None
    kept = weakref.ref(daemon.known.snapshot)
    request = HttpRequest("GET", "/status", MappingProxyType({}), MappingProxyType({}))
    await daemon.pages.show(request)
    del daemon.known
    gc.collect()
    assert kept() is None, "a snapshot would live until somebody looks again"


async def test_what_changes_while_it_is_made_is_not_in_it() -> None:
    daemon, held = Daemon(), Held()
    telemetry = Telemetry()
    meter = Meter(telemetry, "sink", "metrics")
    meter.set_problem("the first", START)
    daemon.known = replace(daemon.known, sinks=held, troubles=telemetry.problems)
    async with daemon.serving() as client:
        slow = asyncio.create_task(client.get("/status"))
        await asyncio.to_thread(held.begun.wait, 10)
        meter.set_problem("the second", START)
        held.allowed.set()
        _, text = await slow
    assert json.loads(text)["sinks"][0]["error"]["text"] == "the first"


async def test_nothing_is_made_while_no_one_looks() -> None:
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
    daemon.house.access = await open_access(web, LOG)
    async with daemon.serving() as client:
        assert (await client.get(path))[0] == 401
        assert daemon.asked == 0
        assert (await client.get(path, basic("alice", "secret")))[0] == 200
    daemon.house.access.close()


def test_a_known_moment_is_what_ages_count_from() -> None:
    known = two_gpus()
    assert known.age(None) is None
    assert known.age(known.now) == 0
    assert replace(known, now=START).age(known.now) == 0
