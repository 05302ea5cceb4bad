"""Rendering and serving the page, compared with prometheus_client with the same series.

Times depend on the machine, ratios hardly: only a ratio is asserted.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from config.value_types import ListenAddress
from pipeline.component.contracts import HttpRequest
from pipeline.exposition.holder_labels import LabelCache
from pipeline.exposition.naming import PageNaming
from pipeline.exposition.options import PageOptions
from pipeline.exposition.renderer import PageTemplate
from pipeline.exposition.text_format import Format
from pipeline.fields import CATALOGUE, FieldPlan, by_name
from pipeline.model import Snapshot
from sinks.prometheus.options import Options
from sinks.prometheus.sink import PrometheusSink
from tests.support.nodes import Node, claim, gpu, reading
from tests.support.sinks import FakeSinkContext

SERIES = 5_000
LOCAL = ListenAddress.parse("127.0.0.1:0")

CLIENT = """
import socket, sys
port, count, extra = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
extra += "\\r\\n" if extra else ""
request = f"GET /metrics HTTP/1.1\\r\\nHost: bench\\r\\n{extra}\\r\\n".encode()
with socket.create_connection(("127.0.0.1", port)) as connection:
    file = connection.makefile("rb", buffering=1 << 20)
    for _ in range(count):
        connection.sendall(request)
        length = 0
        while (line := file.readline().strip().lower()):
            if line.startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        assert len(file.read(length)) == length
"""


def best(call: Callable[[], object], rounds: int = 20) -> float:
    """Return the shortest time of some runs, in milliseconds.

    Each result is kept until the next one exists, as the sink keeps its page.
    """
    times: list[float] = []
    kept: object = None
    for _ in range(rounds):
        start = time.perf_counter()
        result = call()
        times.append(time.perf_counter() - start)
        kept = result
    del kept
    return min(times) * 1e3


def large_node() -> Node:
    """Return a node with 5,000 series of nine labels each; half of its devices are held."""
    fields = [field for field in CATALOGUE if not field.attrs]
    devices = [gpu(at) for at in range(-(-SERIES // len(fields)))]
    readings = [
        reading(device, field.name, 71.25 if field.unit == "watts" else (1 << 20) * (at + 11))
        for at, device in enumerate(devices)
        for field in fields
    ][:SERIES]
    node = Node()
    node.has(*devices)
    node.podlist(*(claim(f"train-{at}", d.uuid) for at, d in enumerate(devices[::2])))
    node.reads(*readings)
    return node


class PreparedFamilies(Collector):
    """A collector with prepared families: the least work for prometheus_client."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._families: dict[str, GaugeMetricFamily] = {}
        for series, found in zip(snapshot.layout.series, snapshot.readings, strict=True):
            field = by_name(series.field)
            assert field is not None
            device, holders = series.attribution.device, series.attribution.holders
            subject = holders[0].subject if holders else None
            labels = {
                "gpu": str(device.index),
                "UUID": device.uuid,
                "pci_bus_id": device.pci_bus_id,
                "device": f"nvidia{device.minor}",
                "modelName": device.model,
                "Hostname": "node-1",
                "namespace": subject.namespace if subject else "",
                "pod": subject.pod if subject else "",
                "container": subject.container if subject else "",
            }
            family = self._families.setdefault(
                field.metric, GaugeMetricFamily(field.metric, field.help, labels=list(labels))
            )
            family.add_metric(list(labels.values()), float(found.value))

    def collect(self) -> Iterator[Metric]:
        return iter(self._families.values())


@pytest.fixture(scope="module")
def node() -> Node:
    return large_node()


def test_rendering_5000_series(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = node.snapshot()
    assert len(snapshot.layout.series) == SERIES
    registry = CollectorRegistry(auto_describe=False)
    registry.register(PreparedFamilies(snapshot))
    plan = FieldPlan.everything()
    cache = LabelCache(PageNaming(PageOptions(), plan, "node-1"))
    shape = PageTemplate(snapshot.layout, snapshot.at, plan, cache)

    def render() -> bytes:
        return shape.body(Format.TEXT, *shape.format_values(snapshot.readings))

    def reshape() -> bytes:
        fresh = PageTemplate(snapshot.layout, snapshot.at, plan, cache)
        return fresh.body(Format.TEXT, *fresh.format_values(snapshot.readings))

    page = render()
    assert page.count(b"\n") > SERIES
    theirs = best(lambda: generate_latest(registry), rounds=5)
    ours = best(render, rounds=50)
    moved = best(reshape)
    with capsys.disabled():
        print(f"\n  {SERIES} series of 9 labels, {len(page) / 1e6:.2f} MB")
        print(f"  {'prometheus_client.generate_latest':<44}{theirs:8.2f} ms")
        print(f"  {'a new snapshot':<44}{ours:8.2f} ms{theirs / ours:8.0f} x")
        print(f"  {'a new layout (a holder changed)':<44}{moved:8.2f} ms{theirs / moved:8.0f} x")
    assert theirs / ours >= 20


async def served(port: int, count: int, header: str) -> None:
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, str(port), str(count), header
    )
    assert await client.wait() == 0


async def test_serving_5000_series(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    ctx = FakeSinkContext()
    ctx.snapshot = node.snapshot()
    for at in range(40):
        ctx.own.add("podgpu_source_events_total", at, (("source", f"source-{at}"),))
    rows: list[tuple[str, float]] = []
    async with contextlib.AsyncExitStack() as stack:
        sink = await stack.enter_async_context(PrometheusSink(Options(listen=LOCAL), ctx))
        port = (await stack.enter_async_context(ctx.http(LOCAL))).port
        for title, header in (("plain", ""), ("gzip", "Accept-Encoding: gzip")):
            request = HttpRequest("GET", "/metrics", {}, {"accept-encoding": header[17:]})
            first: list[float] = []
            for _ in range(20):
                sink._show(ctx.snapshot)
                start = time.perf_counter()
                await sink.serve(request)
                first.append(time.perf_counter() - start)
            rows.append((f"first scrape of a snapshot, {title}, no I/O", min(first) * 1e3))
            await served(port, 20, header)
            start, count = time.process_time(), 200
            await served(port, count, header)
            spent = (time.process_time() - start) * 1e3 / count
            rows.append((f"each scrape, {title}, processor time with I/O", spent))
    with capsys.disabled():
        print()
        for title, spent in rows:
            print(f"  {title:<52}{spent:8.2f} ms")
