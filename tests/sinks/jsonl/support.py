"""A jsonl sink for tests, and functions that read what it wrote."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from config.value_types import ByteSize, Duration
from pipeline.base.channels import Channel
from pipeline.base.telemetry import Point
from pipeline.delivery.options import QueueOptions
from pipeline.model import Instant, Reading, Snapshot
from sinks.jsonl.options import Options
from sinks.jsonl.sink import make_sink
from tests.support.nodes import START, Node, claim, gpu, reading
from tests.support.sinks import FakeSinkContext

NO_TELEMETRY = Duration(0)


class ManualClock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.wall_step = 0.0

    def now(self) -> Instant:
        ns = round(self.seconds * 1e9)
        return Instant(START.mono_ns + ns, START.wall_ns + ns + round(self.wall_step * 1e9))

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def options(
    path: Path | str = "-",
    *,
    max_size: str = "64MiB",
    max_age: str = "0s",
    keep: int = 5,
    telemetry: str = "0s",
    compress: Literal["none", "gzip"] = "none",
    fsync: str = "0s",
    queue: QueueOptions | None = None,
) -> Options:
    return Options(
        path=str(path),
        max_size=ByteSize.parse(max_size),
        max_age=Duration.parse(max_age),
        keep=keep,
        telemetry_interval=Duration.parse(telemetry),
        compress=compress,
        fsync=Duration.parse(fsync),
        queue=queue,
    )


class Bench:
    """One GPU that a pod holds, and a real sink that writes its readings."""

    def __init__(
        self,
        options: Options,
        *,
        kept: dict[str, object] | None = None,
        latest: Snapshot | None = None,
    ) -> None:
        """Make the sink.

        Args:
            options: of the sink.
            kept: the restart state that an earlier sink left.
            latest: the newest snapshot before the sink was made.
        """
        self.clock = ManualClock()
        self.ctx = FakeSinkContext(clock=self.clock)
        self.ctx.restart_state.update(kept or {})
        self.ctx.snapshot = latest
        self.sink = make_sink(options, self.ctx)
        self.node = Node()
        self.node.has(gpu(0))
        self.node.podlist(claim("trainer", gpu(0).uuid))
        self.node.snapshot()
        self.inbox: Channel[Snapshot] = Channel(1000)
        self.running: asyncio.Task[None] | None = None
        self.number = 0
        self.sent = 0

    @asynccontextmanager
    async def writing(self) -> AsyncIterator["Bench"]:
        async with self.sink:
            self.running = asyncio.create_task(self.sink.run(self.inbox))
            yield self
            self.inbox.close()
            async with asyncio.timeout(10):
                await self.running

    def send(self, *readings: Reading) -> None:
        """Send a snapshot of these readings, or of one reading with the next value."""
        self.number += 1
        self.clock.seconds += 1
        self.node.seconds = self.clock.seconds
        if not readings:
            readings = (reading(gpu(0), "power_watts", self.number, when=self.clock.now()),)
        self.node.reads(*readings)
        snapshot = self.node.snapshot()
        self.sent += len(snapshot.fresh)
        self.inbox.offer(snapshot)

    async def write(self, count: int = 1) -> None:
        """Send snapshots of one reading each, and wait until each is written or dropped."""
        for _ in range(count):
            self.send()
            await self.settled()

    async def settled(self) -> None:
        """Wait until all readings that were sent are written or dropped."""
        async with asyncio.timeout(10):
            while self.emitted + sum(self.dropped.values()) < self.sent:
                assert self.running is not None
                if self.running.done():
                    await self.running
                await asyncio.sleep(0.001)

    def value(self, family: str) -> float:
        return sum(point.value for point in self.points(f"podgpu_sink_{family}"))

    @property
    def imbalance(self) -> float:
        """produced + recovered - emitted - rejected - dropped - queued."""
        inputs = self.value("produced_total") + self.value("recovered_total")
        outputs = ("emitted_total", "rejected_total", "dropped_total", "queued")
        return inputs - sum(map(self.value, outputs))

    async def wait_for(self, family: str, value: float) -> None:
        """Wait until the sum of a family has this value."""
        async with asyncio.timeout(10):
            while self.value(family) != value:
                assert self.running is not None
                if self.running.done():
                    await self.running
                await asyncio.sleep(0.001)

    def points(self, family: str) -> list[Point]:
        return [
            point
            for known, points in self.ctx.own.collect({})
            if known.name == family
            for point in points
        ]

    @property
    def emitted(self) -> float:
        return sum(point.value for point in self.points("podgpu_sink_emitted_total"))

    @property
    def errors(self) -> dict[tuple[str, str], float]:
        """Return `podgpu_sink_errors_total` by operation and reason."""
        return {
            (dict(point.labels)["operation"], dict(point.labels)["reason"]): point.value
            for point in self.points("podgpu_sink_errors_total")
        }

    @property
    def dropped(self) -> dict[str, float]:
        return {
            dict(point.labels)["reason"]: point.value
            for point in self.points("podgpu_sink_dropped_total")
        }


def refuse(constant: str) -> float:
    raise AssertionError(f"{constant} is not JSON")


def parsed(text: bytes) -> list[dict[str, Any]]:
    """Parse each line as strict JSON; the text must end with a newline."""
    assert text == b"" or text.endswith(b"\n")
    return [json.loads(line, parse_constant=refuse) for line in text.split(b"\n")[:-1]]


def watts(*files: Path) -> list[float]:
    """Return the values that `Bench.write` wrote, from files in this order."""
    return [
        line["readings"]["power_watts"]
        for file in files
        for line in parsed(file.read_bytes())
        if line["record"] == "device"
    ]


def shape(value: object) -> object:
    """Return the structure of a JSON value: its keys, and type names in place of values."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    return [shape(value[0])] if isinstance(value, list) and value else type(value).__name__


def documented_lines() -> dict[str, Any]:
    """Return the example lines of `docs/sinks/jsonl.md`, by `record`."""
    page = (Path(__file__).parents[3] / "docs/sinks/jsonl.md").read_text(encoding="utf-8")
    found = [json.loads(text) for text in re.findall(r"^```json\n(.*?)^```", page, re.M | re.S)]
    return {line["record"]: line for line in found}
