"""Helpers for the tests of the hostengine source: a source on the fake library, its readings."""

from config.value_types import Duration
from pipeline.fields import FieldPlan, in_group
from pipeline.model import DevicesDiscovered, SamplesTaken
from sources.hostengine.options import Options
from sources.hostengine.source import HostEngineSource
from tests.fakes.dcgm import FakeDcgm
from tests.support.contexts import FakeSourceContext

STANDARD = {
    "graphics_engine_active_ratio": 0.5,
    "tensor_active_ratio": 0.25,
    "pcie_transmit_bytes_per_second": 1000,
}
"""The readings of the default fields from the engine of the fixture."""


def source(fake: FakeDcgm, **options: object) -> HostEngineSource:
    defaults = {
        "library": fake.library,
        "interval": Duration.parse("100ms"),
        "timeout": Duration.parse("300ms"),
    }
    return HostEngineSource(Options(**{**defaults, **options}))  # type: ignore[arg-type]


def context(*groups: str) -> FakeSourceContext:
    """Return a context whose plan has the default fields and those of the groups."""
    ctx = FakeSourceContext("engine")
    chosen = [name for group in groups for name in in_group(group)]
    if chosen:
        ctx.plan = FieldPlan([*(field.name for field in FieldPlan().fields), *chosen])
    return ctx


def values(ctx: FakeSourceContext, device: str) -> dict[str, float]:
    """Return the latest value of each field of a device."""
    return {
        reading.field: reading.value
        for event in ctx.events
        if isinstance(event, SamplesTaken)
        for reading in event.readings
        if reading.device == device
    }


def names(ctx: FakeSourceContext) -> list[str]:
    """Return the uuids of the devices that were reported last."""
    found = [event for event in ctx.events if isinstance(event, DevicesDiscovered)]
    return [device.uuid for device in found[-1].devices]
