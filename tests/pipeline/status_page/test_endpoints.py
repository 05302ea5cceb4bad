"""`/` and `/status` on real listeners."""

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
from pipeline.component.registry import OWN_FAMILIES
from pipeline.http.access import open_access
from pipeline.http.listener_registry import ListenerRegistry
from pipeline.model import NS, Instant
from pipeline.status_page.daemon_state import StatusInput
from pipeline.status_page.endpoints import GOOD_FOR_NS, StatusPages
from pipeline.status_page.html.style import POLICY
from tests.pipeline.status_page.html_reader import read, table
from tests.pipeline.status_page.scenes import mig_node, troubled, two_gpus
from tests.support.http import LOCAL, Client, Clients, says
from tests.support.nodes import START
from tests.support.web import LOG, basic, hashed


class Daemon:
    """The state that the pages show, and the pages on a listener."""

    def __init__(self, scene: Callable[[], StatusInput] = two_gpus) -> None:
        self.known = scene()
        self.now = START
        self.built = 0
        self.pages = StatusPages(lambda: self.now, self._known)
        ok = (True, "ok")
        self.listeners = ListenerRegistry(
            node="node-1",
            version="0",
            health=lambda: ok,
            ready=lambda: ok,
            pages=self.pages.pages,
            front_page=self.pages.front,
        )

    def _known(self) -> StatusInput:
        self.built += 1
        return self.known

    def advance(self, ns: int) -> None:
        self.now = Instant(self.now.mono_ns + ns, self.now.wall_ns + ns)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Client]:
        async with self.listeners.listen(LOCAL) as mounts, Clients() as clients:
            self.port = mounts.port
            mounts.mount("/metrics", says("page"), title="metrics for Prometheus")
            yield await clients.connect(mounts.port)


async def headers_of(client: Client, path: str, method: str = "GET") -> dict[str, str]:
    client.send(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n")
    status, headers, _ = await client.answer(body=method != "HEAD")
    assert status == 200
    return headers


async def test_the_page_and_the_document_show_the_same() -> None:
    async with Daemon(troubled).serving() as client:
        status, page = await client.get("/")
        assert status == 200
        _, text = await client.get("/status")
    document = json.loads(text)
    rows = table(read(page), "gpus")[1:]
    assert [row[0].split()[:2] for row in rows] == [
        ["GPU", str(card["index"])] for card in document["gpus"]
    ]
    for row, card in zip(rows, document["gpus"], strict=True):
        for holder in card["holders"]:
            assert f"{holder['namespace']}/{holder['pod']} ({holder['container']})" in row[5]
    assert [row[0].split()[0] for row in table(read(page), "parts")[1:]] == [
        source["name"] for source in document["sources"]
    ]


async def test_headers_of_the_page_and_the_document() -> None:
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


async def test_many_viewers_cause_one_build_of_the_page() -> None:
    daemon = Daemon(mig_node)
    async with daemon.serving() as client:
        first = [await client.get(path) for path in ("/", "/status", "/", "/?refresh=2")]
        assert first[0] == first[2]
        whole, often = (body.partition("<footer")[0] for _, body in (first[0], first[3]))
        assert whole == often
        assert "Reloads every 10 s" in first[0][1]
        assert "Reloads every 2 s" in first[3][1]
        assert daemon.built == 1
        daemon.known = two_gpus()
        daemon.advance(GOOD_FOR_NS - 1)
        assert await client.get("/status") == first[1]
        daemon.advance(1)
        assert await client.get("/status") != first[1]
        assert await client.get("/") != first[0]
        assert daemon.built == 2


async def test_details_are_rendered_apart_from_the_plain_page() -> None:
    daemon = Daemon()
    async with daemon.serving() as client:
        bodies = [(await client.get(f"/{query}"))[1] for query in ("", "?debug=1", "", "?debug=0")]
    assert ["reported by kubelet" in body for body in bodies] == [False, True, False, False]
    assert daemon.built == 1


async def test_the_last_hour_grows_with_each_remembered_snapshot() -> None:
    daemon, known = Daemon(), two_gpus().snapshot
    assert known is not None
    for step in range(3):
        later = Instant(known.at.mono_ns + (step - 3) * 30 * NS, known.at.wall_ns)
        daemon.pages.remember(replace(known, at=later))
    async with daemon.serving() as client:
        _, text = await client.get("/status")
    history = json.loads(text)["gpus"][0]["history"]
    assert history["utilization_percent"] == [93, 93, 93, 93]


class BlockedSinks(dict[str, str]):
    """Sinks that can be read only after the test allows it."""

    def __init__(self) -> None:
        super().__init__(metrics="prometheus")
        self.started, self.allowed = threading.Event(), threading.Event()

    def items(self):  # type: ignore[no-untyped-def]
        self.started.set()
        assert self.allowed.wait(10), "building the document blocks everything"
        return super().items()


PATHS = ["/", "/status"]


@pytest.mark.parametrize("path", PATHS)
async def test_other_requests_are_served_while_the_page_is_built(path: str) -> None:
    daemon, blocked = Daemon(), BlockedSinks()
    daemon.known = replace(daemon.known, sinks=blocked)
    async with daemon.serving() as first, Clients() as clients:
        second, third = [await clients.connect(daemon.port) for _ in range(2)]
        slow = [asyncio.create_task(client.get(path)) for client in (first, second)]
        await asyncio.to_thread(blocked.started.wait, 10)
        assert (await third.get("/healthz"))[0] == 200
        assert not any(task.done() for task in slow)
        blocked.allowed.set()
        answers = [await task for task in slow]
    assert answers[0][0] == 200
    assert answers[0] == answers[1]
    assert daemon.built == 1
    for thread in threading.enumerate():
        if thread.name == "podgpu-status":
            thread.join(10)
            assert not thread.is_alive(), "the thread stays although nothing is requested"


async def test_a_cancelled_request_does_not_affect_others() -> None:
    daemon, blocked = Daemon(), BlockedSinks()
    daemon.known = replace(daemon.known, sinks=blocked)
    request = HttpRequest("GET", "/status", MappingProxyType({}), MappingProxyType({}))
    gone, stays = [asyncio.create_task(daemon.pages.show(request)) for _ in range(2)]
    await asyncio.to_thread(blocked.started.wait, 10)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    blocked.allowed.set()
    assert json.loads((await stays).body)["node"] == "node-1"


async def test_no_second_build_starts_while_one_takes_long() -> None:
    daemon, blocked = Daemon(), BlockedSinks()
    daemon.known = replace(daemon.known, sinks=blocked)
    request = HttpRequest("GET", "/status", MappingProxyType({}), MappingProxyType({}))
    slow = []
    for second in range(3):
        daemon.now = Instant(START.mono_ns + second * GOOD_FOR_NS, START.wall_ns)
        slow.append(asyncio.create_task(daemon.pages.show(request)))
        await asyncio.to_thread(blocked.started.wait, 10)
    assert daemon.built == 1
    blocked.allowed.set()
    await asyncio.gather(*slow)
    daemon.now = Instant(START.mono_ns + 3 * GOOD_FOR_NS, START.wall_ns)
    await daemon.pages.show(request)
    assert daemon.built == 2


async def test_the_snapshot_of_a_built_document_is_released() -> None:
    daemon = Daemon()
    shown = daemon.known.snapshot
    assert shown is not None
    daemon.known = replace(daemon.known, snapshot=replace(shown))
    assert daemon.known.snapshot is not None
    reference = weakref.ref(daemon.known.snapshot)
    request = HttpRequest("GET", "/status", MappingProxyType({}), MappingProxyType({}))
    await daemon.pages.show(request)
    del daemon.known
    gc.collect()
    assert reference() is None, "the snapshot would live until the next request"


async def test_changes_during_the_build_are_not_in_the_document() -> None:
    daemon, blocked = Daemon(), BlockedSinks()
    telemetry = Telemetry(families=OWN_FAMILIES)
    meter = Meter(telemetry, "sink", "metrics")
    meter.set_problem("the first", START)
    daemon.known = replace(daemon.known, sinks=blocked, troubles=telemetry.problems)
    async with daemon.serving() as client:
        slow = asyncio.create_task(client.get("/status"))
        await asyncio.to_thread(blocked.started.wait, 10)
        meter.set_problem("the second", START)
        blocked.allowed.set()
        _, text = await slow
    assert json.loads(text)["sinks"][0]["error"]["text"] == "the first"


async def test_nothing_is_built_without_a_request() -> None:
    daemon = Daemon()
    async with daemon.serving() as client:
        assert await client.get("/metrics") == (200, "page")
        assert await client.get("/healthz") == (200, "ok\n")
    assert daemon.built == 0


async def test_the_page_of_each_listener_links_its_own_paths() -> None:
    daemon = Daemon()
    other = ListenAddress("::1", 0)
    async with daemon.serving() as client, daemon.listeners.listen(other) as mounts:
        mounts.mount("/another", says(""), title="elsewhere")
        _, page = await client.get("/")
        reader, writer = await asyncio.open_connection("::1", mounts.port)
        _, elsewhere = await Client(reader, writer).get("/")
        writer.transport.abort()
    assert ("./metrics" in page, "./another" in page) == (True, False)
    assert ("./metrics" in elsewhere, "./another" in elsewhere) == (False, True)


@pytest.mark.parametrize("path", ["/", "/status", "/?refresh=2"])
async def test_both_pages_need_the_password(path: str, tmp_path: Path) -> None:
    web = tmp_path / "web.yml"
    web.write_text(f"basic_auth_users: {{alice: {hashed('secret')}}}\n")
    daemon = Daemon()
    daemon.listeners.access = await open_access(web, LOG)
    async with daemon.serving() as client:
        assert (await client.get(path))[0] == 401
        assert daemon.built == 0
        assert (await client.get(path, basic("alice", "secret")))[0] == 200
    daemon.listeners.access.close()


def test_ages_are_relative_to_the_time_of_the_status() -> None:
    known = two_gpus()
    assert known.age(None) is None
    assert known.age(known.now) == 0
    assert replace(known, now=START).age(known.now) == 0
