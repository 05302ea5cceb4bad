"""Encoding and sending snapshots with OTLP, compared with opentelemetry-sdk."""

import asyncio
import gc
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExportResult, MetricsData
from opentelemetry.sdk.resources import Resource

from pipeline.fields import CATALOGUE, FieldPlan
from pipeline.model import Snapshot
from sinks.otlp.encoding.encoder import Encoder
from sinks.otlp.encoding.series_layout import HEALTH, USED
from tests.sinks.otlp.encoding.support import Point, points
from tests.support.nodes import Node, at, claim, gpu, reading

RESOURCES = 100
READINGS = 96
"""The readings of each device; four more points have its holder."""

POINTS = RESOURCES * (READINGS + 4)
FIELDS = [f for f in CATALOGUE if not f.attrs and f.name not in {*HEALTH, USED}][:READINGS]
PLAN = FieldPlan(field.name for field in FIELDS)
METHOD = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"

RECEIVER = """
import sys
from concurrent.futures import ThreadPoolExecutor
import grpc

class AcceptAll(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda request, context: b"")

server = grpc.server(ThreadPoolExecutor(1), options=[("grpc.max_receive_message_length", 64 << 20)])
server.add_generic_rpc_handlers((AcceptAll(),))
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
sys.stdin.read()
"""


def spent(call: Callable[[], object], rounds: int) -> float:
    """Return the lowest processor time of some runs, in milliseconds."""
    times: list[float] = []
    for _ in range(rounds):
        gc.collect()
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times) * 1e3


class Ours:
    """A node of 100 GPUs, each held by another container, and podgpu's encoder."""

    def __init__(self) -> None:
        self.node = Node()
        self.devices = [gpu(index) for index in range(RESOURCES)]
        self.node.has(*self.devices)
        self.hold(0)
        self.encoder = Encoder("node-1", PLAN)

    def hold(self, number: int) -> None:
        """Report the holders; the first container differs for each number."""
        names = [f"train-{index}" for index in range(1, RESOURCES)]
        held = zip([f"number-{number}", *names], self.devices, strict=True)
        self.node.podlist(*(claim(name, device.uuid) for name, device in held))

    def snapshot(self) -> Snapshot:
        self.node.seconds += 1
        now = [at(self.node.seconds - 1 + index / 1000) for index in range(RESOURCES)]
        self.node.reads(
            *(
                reading(device, field.name, 71.25 if field.unit == "watts" else 1000, when=when)
                for device, when in zip(self.devices, now, strict=True)
                for field in FIELDS
            )
        )
        return self.node.snapshot()


class Theirs:
    """The same points with opentelemetry-sdk: one provider for each resource."""

    def __init__(self, expected: Sequence[Point]) -> None:
        self._readers: dict[object, InMemoryMetricReader] = {}
        self._providers: dict[object, MeterProvider] = {}
        self._instruments: dict[object, Any] = {}
        self._calls: list[tuple[Callable[..., None], float, dict[str, str | int]]] = []
        for point in expected:
            self._add(point)

    def _add(self, point: Point) -> None:
        if point.resource not in self._providers:
            self._readers[point.resource] = reader = InMemoryMetricReader()
            self._providers[point.resource] = MeterProvider(
                [reader], Resource(dict(point.resource)), shutdown_on_exit=False
            )
        meter = self._providers[point.resource].get_meter("podgpu")
        key = (point.resource, point.name)
        made: Any = self._instruments.get(key)
        if made is None:
            create: Any = {
                "gauge": meter.create_gauge,
                "counter": meter.create_counter,
                "updowncounter": meter.create_up_down_counter,
            }[point.kind]
            made = self._instruments[key] = create(point.name, point.unit, point.about)
        call = made.set if point.kind == "gauge" else made.add
        self._calls.append((call, point.value or 0, dict(point.attributes)))

    def record(self) -> MetricsData:
        """Record all values and collect them."""
        for call, value, attributes in self._calls:
            call(value, attributes)
        found = [reader.get_metrics_data() for reader in self._readers.values()]
        return MetricsData([under for data in found if data for under in data.resource_metrics])

    def encode(self) -> bytes:
        return encode_metrics(self.record()).SerializeToString()

    def close(self) -> None:
        for provider in self._providers.values():
            provider.shutdown()


@pytest.fixture
def ours() -> Ours:
    return Ours()


@pytest.fixture
def theirs(ours: Ours) -> Iterator[Theirs]:
    made = Theirs(points(Encoder("node-1", PLAN).encode(ours.snapshot())))
    yield made
    made.close()


def show(capsys: pytest.CaptureFixture[str], rows: Sequence[tuple[str, float, float]]) -> None:
    """Print processor times, and how many times faster than opentelemetry-sdk each one is."""
    with capsys.disabled():
        print()
        for title, ours, theirs in rows:
            print(f"  {title:<52}{ours:8.2f} ms{theirs / ours:8.0f} x")


def test_encoding_10000_points(
    ours: Ours, theirs: Theirs, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshots = [ours.snapshot() for _ in range(2)]
    encoder = ours.encoder
    first = time.process_time()
    records = encoder.encode(snapshots[0])
    first = (time.process_time() - first) * 1e3
    assert sum(record.points for record in records) == POINTS
    size = sum(len(record.data) for record in records)
    steady = spent(lambda: encoder.encode(snapshots[1]), 40)
    moved: list[float] = []
    for number in range(1, 8):
        ours.hold(number)
        change, after = ours.node.snapshot(), ours.snapshot()
        start = time.process_time()
        encoder.encode(change)
        made = encoder.encode(after)
        moved.append((time.process_time() - start) * 1e3)
        assert sum(record.points for record in made) == POINTS
    sdk = spent(theirs.encode, 4)
    assert len(theirs.encode()) > size / 2
    with capsys.disabled():
        print(f"\n  {POINTS} points in {RESOURCES} resources, {size / 1e6:.2f} MB")
    rows = [
        ("opentelemetry-sdk: record, collect, encode", sdk, sdk),
        ("a new snapshot", steady, sdk),
        ("a new layout each time (a holder changed)", min(moved), sdk),
        ("the first snapshot", first, sdk),
    ]
    show(capsys, rows)
    assert sdk / steady >= 25


def test_memory_of_10000_points(ours: Ours, capsys: pytest.CaptureFixture[str]) -> None:
    snapshots = [ours.snapshot() for _ in range(3)]
    expected = points(Encoder("node-1", PLAN).encode(snapshots[0]))
    encoder = ours.encoder

    def encode() -> None:
        for snapshot in snapshots:
            encoder.encode(snapshot)

    def sdk() -> Theirs:
        made = Theirs(expected)
        made.encode()
        made.encode()
        return made

    rows: list[tuple[str, int, int]] = []
    for title, call in (("podgpu", encode), ("opentelemetry-sdk", sdk)):
        gc.collect()
        tracemalloc.start()
        kept = call()
        gc.collect()
        rows.append((title, *tracemalloc.get_traced_memory()))
        tracemalloc.stop()
        if kept is not None:
            kept.close()
    with capsys.disabled():
        print(f"\n  {POINTS} points in {RESOURCES} resources")
        for title, held, peak in rows:
            print(f"  {title:<32}{held / 1e6:8.1f} MB kept{peak / 1e6:8.1f} MB at most")
    assert rows[0][1] < rows[1][1]


@pytest.fixture
def receiver() -> Iterator[str]:
    """Run a receiver that accepts everything in a separate process; yield its address."""
    process = subprocess.Popen(
        [sys.executable, "-c", RECEIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield f"127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


def test_pushing_10000_points(
    ours: Ours, theirs: Theirs, receiver: str, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = ours.snapshot()
    encoder = ours.encoder
    exporter = OTLPMetricExporter(endpoint=f"http://{receiver}", insecure=True, timeout=20)

    async def push(rounds: int) -> float:
        times: list[float] = []
        async with grpc.aio.insecure_channel(receiver) as channel:
            call = channel.unary_unary(METHOD)
            await call(b"", timeout=20)
            for _ in range(rounds):
                start = time.process_time()
                records = encoder.encode(snapshot)
                await call(b"".join(record.data for record in records), timeout=20)
                times.append(time.process_time() - start)
        return min(times[1:]) * 1e3

    def export() -> None:
        assert exporter.export(theirs.record()) is MetricExportResult.SUCCESS

    try:
        export()
        sdk = spent(export, 4)
    finally:
        exporter.shutdown()
    pushed = asyncio.run(push(20))
    rows = [
        ("opentelemetry-sdk and its exporter for gRPC", sdk, sdk),
        ("podgpu's encoder and grpc.aio", pushed, sdk),
    ]
    show(capsys, rows)
    assert sdk / pushed >= 10
