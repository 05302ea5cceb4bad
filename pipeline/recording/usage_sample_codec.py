"""Compact encoding of `ProcessesSampled`.

Usage samples contain the same processes again and again, with container ids of many characters.
Therefore a device, and a process with its owner, are written once, as new entries of tables. Later
lines contain only measured values, and indices into these tables.
"""

from operator import attrgetter
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from pipeline.model import DeviceUse, Instant, PartialRef, ProcessesSampled, ProcessUse
from pipeline.recording.sample_codec import (
    Offset,
    TableLine,
    TableReader,
    TableWriter,
    index_in,
    instant_at,
    offset,
)

_Ref: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_Kind: TypeAlias = Literal["compute", "graphics", "mps", ""]
_Owner: TypeAlias = tuple[str, str, str, str, str] | None
_Process: TypeAlias = tuple[int, int | None, _Owner, _Kind]


_owner: Final = attrgetter("namespace", "pod", "container", "uid", "container_id")


class UseRecord(msgspec.Struct, array_like=True):
    """A usage sample of one device. Its processes are (table index, memory, busy time)."""

    device: _Ref
    at: Offset
    since: Offset | None
    memory_used_bytes: int | None
    memory_reserved_bytes: int | None
    busy_ns: int | None
    energy_mj: int | None
    good_for_ns: int
    listed: bool
    processes: list[tuple[_Ref, int | None, int | None]]


class Uses(TableLine, omit_defaults=True):
    """A `ProcessesSampled` event as written in the file.

    Attributes:
        entries: new processes, each as (pid, start, owner, kind).
        found: the usage samples.
        mps: indices in `found` of the devices that an MPS server uses.
    """

    entries: list[_Process] = msgspec.field(default_factory=list, name="processes")
    found: list[UseRecord] = msgspec.field(default_factory=list)
    mps: list[_Ref] = msgspec.field(default_factory=list)


class UsesEncoder(TableWriter):
    """Encodes events for the file, and keeps the tables for later events."""

    def encode(self, event: ProcessesSampled, base: Instant) -> Uses:
        """Return the encoded event, with times relative to `base`."""
        mps = [at for at, use in enumerate(event.uses) if use.mps]
        line = Uses(reset=self.reset_if_full(), mps=mps)
        for use in event.uses:
            line.found.append(
                UseRecord(
                    index_in(self.devices, use.device, line.devices),
                    offset(base, use.at),
                    None if use.since is None else offset(base, use.since),
                    use.memory_used_bytes,
                    use.memory_reserved_bytes,
                    use.busy_ns,
                    use.energy_mj,
                    use.good_for_ns,
                    use.listed,
                    [
                        (
                            index_in(self.entries, _entry(process), line.entries),
                            process.memory_bytes,
                            process.busy_ns,
                        )
                        for process in use.processes
                    ],
                )
            )
        return line


class UsesDecoder(TableReader[tuple[int, int | None, PartialRef | None, _Kind]]):
    """Decodes events from the file, and keeps the tables for later events."""

    def decode(self, line: Uses, base: Instant, size: int) -> ProcessesSampled:
        """Return the event of a line of `size` bytes, with times relative to `base`.

        Raises:
            ValueError: the tables are too large.
            IndexError: an index is outside of the tables.
        """
        processes = [
            (pid, started, None if owner is None else PartialRef(*owner), kind)
            for pid, started, owner, kind in line.entries
        ]
        self.extend(line, processes, size)
        return ProcessesSampled(
            tuple(
                DeviceUse(
                    self.devices[record.device],
                    instant_at(base, record.at),
                    None if record.since is None else instant_at(base, record.since),
                    tuple(
                        ProcessUse(*self.entries[known], memory, busy)
                        for known, memory, busy in record.processes
                    ),
                    record.memory_used_bytes,
                    record.memory_reserved_bytes,
                    record.busy_ns,
                    record.energy_mj,
                    record.good_for_ns,
                    record.listed,
                    mps=at in line.mps,
                )
                for at, record in enumerate(line.found)
            )
        )


def _entry(process: ProcessUse) -> _Process:
    owner = None if process.owner is None else _owner(process.owner)
    return process.pid, process.started, owner, process.kind
