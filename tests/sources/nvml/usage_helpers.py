"""Helpers for usage samples: options with frequent samples, and the samples that were emitted."""

from pathlib import Path

from config.value_types import Duration
from pipeline.model import DeviceUse, ProcessesSampled
from sources.nvml.options import Options
from tests.sources.nvml.harness import options, until
from tests.support.contexts import FakeSourceContext

HERE = Path("/proc/self/root/proc")
"""This machine's procfs at another path. A configured procfs is trusted wherever the tests run."""


def usage_options(
    *,
    every: float = 0.2,
    interval: float = 60,
    slow: float = 60,
    proc: Path = HERE,
    **others: object,
) -> Options:
    """Return options with frequent usage samples and rare rounds."""
    return options(
        interval=interval,
        slow=slow,
        usage_interval=Duration(every),
        proc=proc,
        **others,  # type: ignore[arg-type]
    )


def usage_samples(ctx: FakeSourceContext) -> list[ProcessesSampled]:
    return [event for event in ctx.events if isinstance(event, ProcessesSampled)]


def uses(ctx: FakeSourceContext, uuid: str) -> list[DeviceUse]:
    """Return the usage of one device in all samples."""
    return [use for sample in usage_samples(ctx) for use in sample.uses if use.device == uuid]


async def next_usage_samples(ctx: FakeSourceContext, count: int = 2) -> ProcessesSampled:
    """Wait for `count` more samples and return the last. The second one starts after the call."""
    before = len(usage_samples(ctx))
    await until(lambda: len(usage_samples(ctx)) >= before + count)
    return usage_samples(ctx)[-1]
