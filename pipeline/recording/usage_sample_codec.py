"""`ProcessesSampled` in few bytes.

A look tells again of the same processes, whose containers have ids of a hundred letters. So a
device, and a process with its owner, are told once, as the next entry of a table; looks that follow
hold numbers into the tables, and what was found.
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
    """A look at one device; of its processes the table's entry, memory and busy time."""

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
    """Looks, as they stand in the file.

    Attributes:
        reset: forget both tables before reading on.
        devices: further entries of the table of devices.
        processes: further entries of the table of processes: pid, start, owner, kind.
        found: the looks.
        mps: places among them of devices on which an MPS server works.
    """

    reset: bool = False
    devices: list[str] = []
    processes: list[_Process] = []
    found: list[UseRecord] = []
    mps: list[_Ref] = []

    @property
    def extends(self) -> bool:
        """Whether it adds to the tables."""
        return bool(self.devices or self.processes)


class UsesEncoder:
    """Turns looks into what stands in the file; keeps the tables."""

    def __init__(self) -> None:
        self._devices: dict[str, int] = {}
        self._processes: dict[_Process, int] = {}
        self._bytes = 0

    def encode(self, event: ProcessesSampled, base: Instant) -> Uses:
        """Return looks, with times as seen from `base`."""
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
        """Note the size of a line that adds to the tables."""
        self._bytes += size


class UsesDecoder:
    """Turns what stands in the file into looks; keeps the tables."""

    def __init__(self) -> None:
        self._devices: list[str] = []
        self._processes: list[tuple[int, int | None, PartialRef | None, _Kind]] = []
        self._bytes = 0

    def decode(self, line: Uses, base: Instant, size: int) -> ProcessesSampled:
        """Return the looks of a line of `size` bytes, with times as seen from `base`.

        Raises:
            ValueError: the tables grow without end.
            IndexError: the line points past the tables.
        """
        if line.reset:
            self._devices.clear()
            self._processes.clear()
            self._bytes = 0
        if line.extends:
            self._bytes += size
            # The writer starts anew long before; who goes on has memory in mind.
            if self._bytes > 8 * TABLE_BYTES:
                raise ValueError("the tables grow without end")
            self._devices += line.devices
            self._processes += [
                (pid, started, None if owner is None else PartialRef(*owner), kind)
                for pid, started, owner, kind in line.processes
            ]
        return ProcessesSampled(
            tuple(
                DeviceUse(
                    self._devices[found.device],
                    instant_at(base, found.at),
                    None if found.since is None else instant_at(base, found.since),
                    tuple(
                        ProcessUse(*self._processes[known], memory, busy)
                        for known, memory, busy in found.processes
                    ),
                    found.memory_used_bytes,
                    found.memory_reserved_bytes,
                    found.busy_ns,
                    found.energy_mj,
                    found.good_for_ns,
                    found.listed,
                    mps=at in line.mps,
                )
                for at, found in enumerate(line.found)
            )
        )


def _entry(process: ProcessUse) -> _Process:
    who = process.owner
    owner = None
    if who is not None:
        owner = (who.namespace, who.pod, who.container, who.uid, who.container_id)
    return process.pid, process.started, owner, process.kind


def uses_of(body: object) -> Uses:
    """Read looks as they stand in the file.

    Raises:
        msgspec.ValidationError: they are none.
    """
    return msgspec.convert(body, Uses)


def builtins_of_uses(line: Uses) -> dict[str, Any]:
    """Return looks as JSON's types."""
    return cast("dict[str, Any]", msgspec.to_builtins(line))
