"""Runs the source against the fake library, and looks things up in what it emitted."""

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
"""The uuids that the fake's h100(place) has."""

HANGS = {"nvmlDeviceGetPowerUsage": 60.0}
"""What a GPU is given to hang in, in seconds."""


def mig(place: int, gi: int) -> str:
    """The uuid that the fake's slices(place, ...) give GPU instance gi."""
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
    """Run the source; its own failure fails the test, unless the test awaits the task."""
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
    """Wait until a condition holds; one that looks for what isn't there yet doesn't."""
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
    """The rounds: unlike forced readings and fresh XIDs they tell of every GPU whether it is up."""
    return [
        event
        for event in ctx.events
        if isinstance(event, SamplesTaken) and any(r.field == "gpu_up" for r in event.readings)
    ]


async def next_rounds(ctx: FakeSourceContext, count: int = 2) -> SamplesTaken:
    """Wait for that many more rounds; of two the second began after the call. Return the last."""
    before = len(rounds(ctx))
    await until(lambda: len(rounds(ctx)) >= before + count)
    return rounds(ctx)[-1]


def inventories(ctx: FakeSourceContext) -> list[list[str]]:
    """The uuids of each inventory that was announced."""
    return [
        [device.uuid for device in event.devices]
        for event in ctx.events
        if isinstance(event, DevicesDiscovered)
    ]


def values(samples: SamplesTaken, uuid: str) -> dict[str, int | float]:
    """The readings of a device, as field or field{attr,...}: value."""
    return {name(reading): reading.value for reading in samples.readings if reading.device == uuid}


def name(reading: Reading) -> str:
    attrs = ",".join(value for _, value in reading.attrs)
    return f"{reading.field}{{{attrs}}}" if attrs else reading.field


PROFILED = frozenset(field.name for field in CATALOGUE if field.call.startswith("nvmlGpm"))


def fields(samples: SamplesTaken, uuid: str) -> set[str]:
    """The fields of a device that come from the driver in this round.

    Without those of GPM, which need a round before, and that not too close.
    """
    own = {reading.field for reading in samples.readings if reading.device == uuid}
    return {field for field in own - PROFILED if not field.startswith("xid_")}


def ups(samples: SamplesTaken) -> dict[str, int | float]:
    """What gpu_up says, by uuid."""
    return {r.device: r.value for r in samples.readings if r.field == "gpu_up"}


def listed(samples: SamplesTaken, uuid: str) -> ProcessList | None:
    return next((p for p in samples.processes if p.device == uuid), None)


def errors(ctx: FakeSourceContext) -> dict[tuple[str, str], float]:
    """podgpu_sample_errors_total by device and error."""
    return {
        (dict(point.labels)["device"], dict(point.labels)["error"]): point.value
        for family, points in ctx.telemetry.collect({})
        if family.name == "podgpu_sample_errors_total"
        for point in points
    }


def counter(ctx: FakeSourceContext, family_name: str, suffix: str = "") -> float:
    """The sum of a family of our own telemetry."""
    return sum(
        point.value
        for family, points in ctx.telemetry.collect({})
        if family.name == family_name
        for point in points
        if point.suffix == suffix
    )


def sampling_threads() -> int:
    """How many threads there are that call NVML for readings, stuck ones among them."""
    return sum(thread.name == "podgpu-nvml" for thread in threading.enumerate())


def good_for(samples: SamplesTaken, names: Iterable[str]) -> set[int]:
    wanted = set(names)
    return {r.good_for_ns for r in samples.readings if r.field in wanted}
