"""Compact encoding of `ProcessesSampled`.

Usage samples contain the same processes again and again, with container ids of many characters.
Therefore a device, and a process with its owner, are written once, as new entries of tables. Later
lines contain only indices into these tables and the measured values.
"""

from typing import Annotated, Any, Literal, TypeAlias, cast

import msgspec

from pipeline.model import DeviceUse, Instant, PartialRef, ProcessesSampled, ProcessUse
from pipeline.recording.sample_codec import TABLE_BYTES, Offset, index_in, instant_at, offset

_Ref: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_Kind: TypeAlias = Literal["compute", "graphics", "mps", ""]
_Owner: TypeAlias = tuple[str, str, str, str, str] | None
_Process: TypeAlias = tuple[int, int | None, _Owner, _Kind]


class UseRecord(msgspec.Struct, array_like=True):
    """A usage sample of one device; processes as table index, memory and busy time."""

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


class Uses(msgspec.Struct, omit_defaults=True):
    """A `ProcessesSampled` event as written in the file.

    Attributes:
        reset: clear both tables before reading on.
        devices: new entries of the table of devices.
        processes: new entries of the table of processes: pid, start, owner, kind.
        found: the samples.
        mps: indices in `found` of devices that an MPS server uses.
    """

    reset: bool = False
    devices: list[str] = []
    processes: list[_Process] = []
    found: list[UseRecord] = []
    mps: list[_Ref] = []

    @property
    def extends(self) -> bool:
        """Whether it adds entries to the tables."""
        return bool(self.devices or self.processes)


class UsesEncoder:
    """Encodes events for the file, and keeps the tables."""

    def __init__(self) -> None:
        self._devices: dict[str, int] = {}
        self._processes: dict[_Process, int] = {}
        self._bytes = 0

    def encode(self, event: ProcessesSampled, base: Instant) -> Uses:
        """Return the encoded event, with times relative to `base`."""
        line = Uses(mps=[at for at, use in enumerate(event.uses) if use.mps])
        if self._bytes > TABLE_BYTES:
            self._devices.clear()
            self._processes.clear()
            self._bytes = 0
            line.reset = True
        for use in event.uses:
            line.found.append(
                UseRecord(
                    index_in(self._devices, use.device, line.devices),
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
                            index_in(self._processes, _entry(process), line.processes),
                            process.memory_bytes,
                            process.busy_ns,
                        )
                        for process in use.processes
                    ],
                )
            )
        return line

    def extended(self, size: int) -> None:
        """Add the size of a line that extends the tables."""
        self._bytes += size


class UsesDecoder:
    """Decodes events from the file, and keeps the tables."""

    def __init__(self) -> None:
        self._devices: list[str] = []
        self._processes: list[tuple[int, int | None, PartialRef | None, _Kind]] = []
        self._bytes = 0

    def decode(self, line: Uses, base: Instant, size: int) -> ProcessesSampled:
        """Return the event of a line of `size` bytes, with times relative to `base`.

        Raises:
            ValueError: the tables are too large.
            IndexError: an index is outside of the tables.
        """
        if line.reset:
            self._devices.clear()
            self._processes.clear()
            self._bytes = 0
        if line.extends:
            self._bytes += size
            # The writer resets its tables long before. Without a limit, a file could fill memory.
            if self._bytes > 8 * TABLE_BYTES:
                raise ValueError("the tables are too large")
            self._devices += line.devices
            self._processes += [
                (pid, started, None if owner is None else PartialRef(*owner), kind)
                for pid, started, owner, kind in line.processes
            ]
        return ProcessesSampled(
            tuple(
                DeviceUse(
                    self._devices[record.device],
                    instant_at(base, record.at),
                    None if record.since is None else instant_at(base, record.since),
                    tuple(
                        ProcessUse(*self._processes[known], memory, busy)
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
    ref = process.owner
    owner = None
    if ref is not None:
        owner = (ref.namespace, ref.pod, ref.container, ref.uid, ref.container_id)
    return process.pid, process.started, owner, process.kind


def uses_of(body: object) -> Uses:
    """Parse the body of a line.

    Raises:
        msgspec.ValidationError: the body is invalid.
    """
    return msgspec.convert(body, Uses)


def builtins_of_uses(line: Uses) -> dict[str, Any]:
    """Return the body of a line as JSON types."""
    return cast("dict[str, Any]", msgspec.to_builtins(line))
