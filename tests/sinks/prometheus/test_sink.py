"""The sink `prometheus` with a real HTTP listener."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiohttp
import pytest

from config.value_types import ListenAddress
from pipeline.base.channels import Channel
from pipeline.base.errors import PermanentError
from pipeline.component.registry import KINDS, build_sink, load
from pipeline.exposition.text_format import Format
from pipeline.model import Snapshot
from sinks.prometheus.options import Options
from sinks.prometheus.sink import PrometheusSink
from tests.pipeline.exposition.pages import context, of, parsed, plain_gpus
from tests.support.nodes import Node, claim, gpu, reading
from tests.support.sinks import FakeSinkContext

LOCAL = ListenAddress.parse("127.0.0.1:0")
OPTIONS = Options(listen=LOCAL)
ACCEPT = {
    Format.TEXT: "text/plain; version=0.0.4",
    Format.OPENMETRICS: "application/openmetrics-text; version=1.0.0",
}


@contextlib.asynccontextmanager
async def client(ctx: FakeSinkContext) -> AsyncIterator[aiohttp.ClientSession]:
    async with ctx.http(LOCAL) as mounts:
        base = f"http://127.0.0.1:{mounts.port}"
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(base, connector=connector) as session:
            yield session


def test_the_registry_builds_the_sink() -> None:
    assert load(KINDS["sink", "prometheus"].options) is Options
    assert isinstance(build_sink("prometheus", OPTIONS, context()), PrometheusSink)


async def test_the_sink_serves_the_newest_snapshot() -> None:
    ctx = context()
    inbox: Channel[Snapshot] = Channel(1)
    async with PrometheusSink(OPTIONS, ctx) as sink, client(ctx) as http:
        running = asyncio.create_task(sink.run(inbox))
        assert "podgpu_source_events_total" in await (await http.get("/metrics")).text()
        inbox.offer(plain_gpus())
        page = b""
        while b"DCGM_FI_DEV_GPU_UTIL" not in page:
            page = await (await http.get("/metrics")).read()
        assert len(of(parsed(page), "DCGM_FI_DEV_GPU_UTIL")) == 3
        inbox.close()
        await running


async def test_a_reloaded_sink_serves_the_current_snapshot_immediately() -> None:
    ctx = context(plain_gpus())
    async with PrometheusSink(OPTIONS, ctx), client(ctx) as http:
        assert len(of(parsed(await (await http.get("/metrics")).read()), "podgpu_gpu_up")) == 3


@pytest.mark.parametrize("form", Format)
async def test_headers_and_body_of_responses(form: Format) -> None:
    ctx = context(plain_gpus())
    async with PrometheusSink(OPTIONS, ctx), client(ctx) as http:
        headers = {"Accept": ACCEPT[form], "Accept-Encoding": "gzip"}
        response = await http.get("/metrics?name=ignored", headers=headers)
        assert response.headers["Content-Type"] == form.content_type
        assert response.headers["Content-Encoding"] == "gzip"
        assert response.headers["Vary"] == "Accept, Accept-Encoding"
        assert parsed(await response.read(), form)
        head = await http.head("/metrics", headers=headers)
        assert head.headers["Content-Type"] == form.content_type
        assert await head.read() == b""
        plain = await http.get("/metrics", headers={"Accept-Encoding": "identity"})
        assert "Content-Encoding" not in plain.headers


async def test_the_path_can_be_configured() -> None:
    ctx = context()
    async with PrometheusSink(Options(listen=LOCAL, path="/gpu"), ctx), client(ctx) as http:
        assert (await http.get("/gpu")).status == 200
        assert (await http.get("/metrics")).status == 404
        assert "metrics for Prometheus" in await (await http.get("/")).text()


async def test_a_path_in_use_is_rejected_and_no_listener_stays_open() -> None:
    ctx = context()
    async with PrometheusSink(OPTIONS, ctx):
        with pytest.raises(PermanentError, match="another component uses this path"):
            await PrometheusSink(OPTIONS, ctx).__aenter__()
    with pytest.raises(PermanentError, match="podgpu uses this path"):
        await PrometheusSink(Options(listen=LOCAL, path="/healthz"), ctx).__aenter__()
    assert not ctx.listeners._listeners


@pytest.mark.slow
async def test_scrapes_succeed_during_a_reload() -> None:
    ctx = context(plain_gpus())
    async with client(ctx) as http:
        statuses: set[int] = set()

        async def scrape() -> None:
            while True:
                async with http.get("/metrics") as response:
                    statuses.add(response.status)
                    await response.read()

        old = PrometheusSink(OPTIONS, ctx)
        await old.__aenter__()
        scraping = [asyncio.create_task(scrape()) for _ in range(4)]
        for _ in range(10):
            await asyncio.sleep(0.005)
            with ctx.listeners.keep_served():
                await old.__aexit__(None, None, None)
                await asyncio.sleep(0.002)
                old = PrometheusSink(OPTIONS, ctx)
                await old.__aenter__()
        for task in scraping:
            task.cancel()
        await asyncio.gather(*scraping, return_exceptions=True)
        await old.__aexit__(None, None, None)
        assert statuses == {200}


@pytest.mark.slow
async def test_every_page_shows_one_snapshot() -> None:
    """Snapshots and holders change while clients scrape; each page is of one snapshot."""
    node = Node()
    devices = [gpu(at) for at in range(4)]
    node.has(*devices)
    ctx = context()
    inbox: Channel[Snapshot] = Channel(1)
    seen: set[float] = set()

    async def scrape(http: aiohttp.ClientSession, form: Format) -> None:
        while not inbox.closed:
            async with http.get("/metrics", headers={"Accept": ACCEPT[form]}) as response:
                series = parsed(await response.read(), form)
            util = of(series, "DCGM_FI_DEV_GPU_UTIL")
            values = {value for _, value in util}
            assert len(values) <= 1
            for value in values:
                seen.add(value)
                assert len(util) == len(devices)
                assert {labels["pod"] for labels, _ in util} == {f"pod-{int(value) // 3}"}

    async with PrometheusSink(OPTIONS, ctx) as sink, client(ctx) as http:
        running = asyncio.create_task(sink.run(inbox))
        scraping = [asyncio.create_task(scrape(http, form)) for form in (*Format, *Format)]
        for at in range(30):
            if not at % 3:
                node.podlist(*(claim(f"pod-{at // 3}", device.uuid) for device in devices))
            node.reads(*(reading(device, "gpu_utilization_percent", at) for device in devices))
            inbox.offer(node.snapshot())
            await asyncio.sleep(0.003)
        inbox.close()
        await asyncio.gather(running, *scraping)
    assert len(seen) > 3
