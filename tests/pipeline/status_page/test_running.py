"""The status page of a whole podgpu."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from html import unescape
from typing import Any
from urllib.parse import unquote

import pytest

from pipeline.base.errors import PermanentError, TransientError
from pipeline.component.contracts import SourceContext
from pipeline.model import DevicesDiscovered, SamplesTaken
from pipeline.runtime.runtime import Runtime
from tests.pipeline.runtime.runtimes import holding, registered
from tests.pipeline.status_page.html_reader import read
from tests.support.components import KeepingSink, Registered, configured, never
from tests.support.http import LOCAL, Client, Clients, says
from tests.support.nodes import START, gpu, reading

__all__ = ["registered"]


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
        async with runtime._serving.listeners.listen(LOCAL) as mounts, Clients() as clients:
            mounts.mount("/a b/ü%", says("here"), title="a path that has to be escaped")
            yield await clients.connect(mounts.port)
    finally:
        stop.set()
        await task


async def status_when(client: Client, condition: Callable[[Any], bool]) -> Any:
    """Query until the condition is true for the document."""
    async with asyncio.timeout(20):
        while True:
            status, text = await client.get("/status")
            assert status == 200
            document = json.loads(text)
            if condition(document):
                return document
            await asyncio.sleep(0.1)


async def test_the_status_of_a_running_podgpu(registered: Registered) -> None:
    registered.sources = {"gpus": discovering, "holders": holding("train-0")}
    async with running(registered, ["gpus", "holders"], ["keep"]) as client:
        found = await status_when(client, lambda d: d["gpus"] and d["gpus"][0]["holders"])
        assert found["node"] == "node-1"
        assert found["ready"]
        assert [card["state"] for card in found["gpus"]] == ["up", "unknown"]
        assert found["gpus"][0]["holders"][0]["pod"] == "train-0"
        assert found["gpus"][0]["holders"][0]["source"] == "holders"
        assert [source["state"] for source in found["sources"]] == ["up", "up"]
        assert [(sink["name"], sink["kind"], sink["up"]) for sink in found["sinks"]] == [
            ("keep", "keep", True)
        ]


async def test_every_link_of_the_page_is_served(registered: Registered) -> None:
    registered.sources = {"gpus": discovering}
    async with running(registered, ["gpus"], ["keep"]) as client:
        await status_when(client, lambda d: d["gpus"])
        _, page = await client.get("/")
        found = read(page)
        hrefs = {anchor.attributes["href"] or "" for anchor in found.all("a")}
        paths = {unquote(unescape(href)[1:]) for href in hrefs}
        condition = {"/a b/ü%", "/status", "/topology", "/healthz", "/readyz"}
        assert condition <= paths
        # No source here reports the topology, and the best GPUs need a parameter.
        others = {"./topology": 404, "./topology/best": 400}
        for href in hrefs:
            assert ((await client.get(href[1:]))[0], href) == (others.get(href, 200), href)


async def test_the_error_of_a_source_is_reported(registered: Registered) -> None:
    async def fails(ctx: SourceContext) -> None:
        raise TransientError("no socket at /run/x.sock; mount it", retry_after=60)

    registered.sources = {"gpus": discovering, "fails": fails}
    async with running(registered, ["gpus", "fails"], ["keep"]) as client:
        # The error is known one turn of the event loop before the state is `down`.
        found = await status_when(
            client,
            lambda d: (
                d["sources"][1:] and d["sources"][1]["error"] and d["sources"][1]["state"] == "down"
            ),
        )
        source = found["sources"][1]
        assert source["restarts"] == 1
        assert source["error"]["text"] == "no socket at /run/x.sock; mount it"
        assert not source["error"]["over"]
        assert source["error"]["age_seconds"] < 60


@pytest.mark.slow
async def test_a_resolved_error_of_a_source_is_reported(registered: Registered) -> None:
    failed: list[None] = []

    async def fails_once(ctx: SourceContext) -> None:
        if not failed:
            failed.append(None)
            raise TransientError("not yet")
        await discovering(ctx)

    registered.sources = {"gpus": fails_once}
    async with running(registered, ["gpus"], ["keep"]) as client:
        found = await status_when(client, lambda d: d["gpus"])
        [source] = found["sources"]
        assert (source["state"], source["restarts"]) == ("up", 1)
        assert (source["error"]["text"], source["error"]["over"]) == ("not yet", True)


@pytest.mark.parametrize("error", [TransientError("the disk is full"), PermanentError("no path")])
async def test_the_error_of_a_sink_is_reported(registered: Registered, error: Exception) -> None:
    registered.sources = {"gpus": discovering}
    keep = registered.sinks["keep"]
    assert isinstance(keep, KeepingSink)
    keep.run_failures = [error]
    keep.failures = [TransientError("still so"), None]
    async with running(registered, ["gpus"], ["keep"]) as client:
        found = await status_when(client, lambda d: d["sinks"][0]["error"])
        [sink] = found["sinks"]
        assert not sink["up"]
        assert sink["error"]["text"] == str(error)
        assert not sink["error"]["over"]


async def test_the_time_of_a_loss_is_known_without_an_earlier_request(
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
        found = await status_when(client, lambda d: d["sinks"][0]["dropped"])
        assert 0 <= found["sinks"][0]["lost_seconds"] < 60


async def test_a_sink_that_fails_at_the_start_is_reported(registered: Registered) -> None:
    registered.sources = {"gpus": discovering}
    keep = registered.sinks["keep"]
    assert isinstance(keep, KeepingSink)
    keep.failures = [TransientError("later"), TransientError("not yet")]
    async with running(registered, ["gpus"], ["keep"]) as client:
        found = await status_when(client, lambda d: d["sinks"] and d["sinks"][0]["error"])
        assert found["sinks"][0]["error"]["text"] in {"not yet", "later"}
        assert found["sinks"][0]["up"] is False
