"""The words every part of podgpu shares: facts, dimensions, events and snapshots.

Everything here is immutable and imports the standard library only. Sources make events out of these
types, the join turns events into a `Snapshot`, sinks read snapshots. Nothing here does I/O, reads a
clock or knows a wire format.
"""

from pipeline.model.claims import Claim, Evidence, Holder, Origin, PartialRef, RawDeviceId
from pipeline.model.devices import Device, MigPlace
from pipeline.model.events import (
    ClaimsReplaced,
    ClockTicked,
    DevicesDiscovered,
    Envelope,
    Event,
    HolderChanged,
    SamplesTaken,
    SourceAdded,
    SourceLost,
    SourceRemoved,
)
from pipeline.model.readings import Attrs, GpuProcess, ProcessList, Reading, Value
from pipeline.model.snapshot import Attribution, Layout, Series, Snapshot, SourceState
from pipeline.model.time import NS, Instant

__all__ = [
    "NS",
    "Attribution",
    "Attrs",
    "Claim",
    "ClaimsReplaced",
    "ClockTicked",
    "Device",
    "DevicesDiscovered",
    "Envelope",
    "Event",
    "Evidence",
    "GpuProcess",
    "Holder",
    "HolderChanged",
    "Instant",
    "Layout",
    "MigPlace",
    "Origin",
    "PartialRef",
    "ProcessList",
    "RawDeviceId",
    "Reading",
    "SamplesTaken",
    "Series",
    "Snapshot",
    "SourceAdded",
    "SourceLost",
    "SourceRemoved",
    "SourceState",
    "Value",
]
