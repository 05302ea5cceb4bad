"""Runs the source to look who uses the devices, and looks up what it told."""

from pathlib import Path

from config.value_types import Duration
from pipeline.model import DeviceUse, ProcessesSampled
from sources.nvml.options import Options
from tests.sources.nvml.harness import options, until
from tests.support.contexts import FakeSourceContext

HERE = Path("/proc/self/root/proc")
"""This machine's procfs by another name: chosen, it is believed, wherever the tests run."""


def looking(
    *,
    every: float = 0.2,
    interval: float = 60,
    slow: float = 60,
    proc: Path = HERE,
    **others: object,
) -> Options:
    """Options with looks that are close, and rounds that are far apart."""
    return options(
        interval=interval,
        slow=slow,
        usage_interval=Duration(every),
        proc=proc,
        **others,  # type: ignore[arg-type]
    )


def looks(ctx: FakeSourceContext) -> list[ProcessesSampled]:
    return [event for event in ctx.events if isinstance(event, ProcessesSampled)]


def uses(ctx: FakeSourceContext, uuid: str) -> list[DeviceUse]:
    """All that was told of one device."""
    return [use for look in looks(ctx) for use in look.uses if use.device == uuid]


async def next_looks(ctx: FakeSourceContext, count: int = 2) -> ProcessesSampled:
    """Wait for that many more looks; of two the second began after the call. Return the last."""
    before = len(looks(ctx))
    await until(lambda: len(looks(ctx)) >= before + count)
    return looks(ctx)[-1]
