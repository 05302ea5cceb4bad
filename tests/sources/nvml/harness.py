"""Helpers that run the source against the fake library and find events that it emitted."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterable

from config.value_types import Duration
from pipeline.fields import CATALOGUE
from pipeline.model import DevicesDiscovered, ProcessList, Reading, SamplesTaken
from sources.nvml.options import Options
from sources.nvml.source import NvmlSource
from tests.support.contexts import FakeSourceContext

GPU = [f"GPU-{place:08x}-5eed-4a5e-9c0d-10{place:010d}" for place in range(8)]
"""The uuids that the fake's h100(place) has, by place."""

HANGS = {"nvmlDeviceGetPowerUsage": 60.0}
"""The call that blocks on a hanging GPU, and for how many seconds."""


def mig(place: int, gi: int) -> str:
    """Return the uuid of GPU instance `gi` that the fake's slices(place, ...) creates."""
    return f"MIG-{place:08x}-5eed-4a5e-9c0d-{gi:012d}"


def options(
    *, interval: float = 0.1, slow: float = 0.2, deadline: float = 5, **others: object
) -> Options:
    return Options(
        interval=Duration(interval),
        slow_interval=Duration(slow),
        deadline=Duration(deadline),
        **others,  # type: ignore[arg-type]
    )


@contextlib.asynccontextmanager
async def running(
    ctx: FakeSourceContext, source: NvmlSource | Options | None = None
) -> AsyncIterator["asyncio.Task[None]"]:
    """Run the source. Its failure fails the test, unless the test awaits the task."""
    if not isinstance(source, NvmlSource):
        source = NvmlSource(source or options())
    task = asyncio.create_task(source.run(ctx))
    try:
        yield task
    finally:
        if not task.done():
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(condition: object, *, within: float = 5) -> None:
    """Wait until a condition is true. IndexError and KeyError count as false."""
    assert callable(condition)

    def holds() -> bool:
        try:
            return bool(condition())
        except (IndexError, KeyError):
            return False

    async with asyncio.timeout(within):
        while not holds():
            await asyncio.sleep(0.01)


def rounds(ctx: FakeSourceContext) -> list[SamplesTaken]:
    """Return the rounds: the events with gpu_up, which forced readings and XIDs don't have."""
    return [
        event
        for event in ctx.events
        if isinstance(event, SamplesTaken) and any(r.field == "gpu_up" for r in event.readings)
    ]


async def next_rounds(ctx: FakeSourceContext, count: int = 2) -> SamplesTaken:
    """Wait for `count` more rounds and return the last. The second one starts after the call."""
    before = len(rounds(ctx))
    await until(lambda: len(rounds(ctx)) >= before + count)
    return rounds(ctx)[-1]


def inventories(ctx: FakeSourceContext) -> list[list[str]]:
    """Return the uuids of each reported inventory."""
    return [
        [device.uuid for device in event.devices]
        for event in ctx.events
        if isinstance(event, DevicesDiscovered)
    ]


def values(samples: SamplesTaken, uuid: str) -> dict[str, int | float]:
    """Return the values of a device by `field` or `field{attribute,...}`."""
    return {name(reading): reading.value for reading in samples.readings if reading.device == uuid}


def name(reading: Reading) -> str:
    attrs = ",".join(value for _, value in reading.attrs)
    return f"{reading.field}{{{attrs}}}" if attrs else reading.field


PROFILED = frozenset(field.name for field in CATALOGUE if field.call.startswith("nvmlGpm"))


def fields(samples: SamplesTaken, uuid: str) -> set[str]:
    """Return the fields of a device that come from the driver in this round.

    GPM fields are left out, because they need an earlier round that is not too close.
    """
    own = {reading.field for reading in samples.readings if reading.device == uuid}
    return {field for field in own - PROFILED if not field.startswith("xid_")}


def ups(samples: SamplesTaken) -> dict[str, int | float]:
    """Return gpu_up by uuid."""
    return {r.device: r.value for r in samples.readings if r.field == "gpu_up"}


def listed(samples: SamplesTaken, uuid: str) -> ProcessList | None:
    return next((p for p in samples.processes if p.device == uuid), None)


def errors(ctx: FakeSourceContext) -> dict[tuple[str, str], float]:
    """Return podgpu_sample_errors_total by device and error."""
    return {
        (dict(point.labels)["device"], dict(point.labels)["error"]): point.value
        for family, points in ctx.telemetry.collect({})
        if family.name == "podgpu_sample_errors_total"
        for point in points
    }


def counter(ctx: FakeSourceContext, family_name: str, suffix: str = "") -> float:
    """Return the sum of a metric family of podgpu's own telemetry."""
    return sum(
        point.value
        for family, points in ctx.telemetry.collect({})
        if family.name == family_name
        for point in points
        if point.suffix == suffix
    )


def sampling_threads() -> int:
    """Return how many threads call NVML for readings, including stuck ones."""
    return sum(thread.name == "podgpu-nvml" for thread in threading.enumerate())


def good_for(samples: SamplesTaken, names: Iterable[str]) -> set[int]:
    wanted = set(names)
    return {r.good_for_ns for r in samples.readings if r.field in wanted}
