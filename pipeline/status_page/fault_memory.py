"""Remembers since when each fault is present, and whom the XID errors of the last hour affected.

Snapshots show only what is true now, and XID errors for five minutes. The page shows both longer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from pipeline.model import NS, Instant, PartialRef, Snapshot, Value, XidError, XidVictim
from pipeline.status_page.gpu_faults import FaultKey, FaultKind, FaultReader, Faults

HOLD_NS: Final = 60 * NS
"""How long a slowdown stays a problem after it was last seen, so that it does not flicker."""

XID_NS: Final = 3600 * NS
"""How long an XID error is remembered."""

MOST_XIDS: Final = 256
"""Maximum number of remembered XID codes of all GPUs: those with the latest errors."""

MOST_VICTIMS: Final = 16
"""Maximum number of remembered containers that errors with one code on one GPU affected."""


@dataclass(frozen=True, slots=True)
class KnownFault:
    """A fault that is present.

    Attributes:
        key: device and kind.
        value: a count of errors, a code, or 1.
        since: when podgpu saw it first. For ECC errors: when their number last increased.
        since_known: whether podgpu had seen the device without the fault before.
        last: when it was last present.
    """

    key: FaultKey
    value: Value
    since: Instant
    since_known: bool
    last: Instant


@dataclass(frozen=True, slots=True)
class KnownXid:
    """The XID errors of a GPU with one code.

    Attributes:
        gpu: UUID of the GPU.
        code: the code.
        at: time of the last error.
        victims: containers that errors of the last hour affected, the latest last.
        victims_left_out: number of further such containers.
    """

    gpu: str
    code: int
    at: Instant
    victims: tuple[XidVictim, ...]
    victims_left_out: int = 0


class FaultMemory:
    """Follows the faults and XID errors of snapshots."""

    def __init__(self) -> None:
        self._reader = FaultReader()
        self._faults: dict[FaultKey, KnownFault] = {}
        self._read: frozenset[tuple[str, FaultKind]] = frozenset()
        self._checked: frozenset[tuple[str, FaultKind]] = frozenset()
        self._errors: Sequence[XidError] = ()
        self._xids: dict[tuple[str, int], KnownXid] = {}
        self._returned: dict[str, Instant] = {}

    def add(self, snapshot: Snapshot) -> None:
        """Add a snapshot; snapshots must be in the order of time."""
        found = self._reader.read(snapshot)
        now, before = snapshot.at, self._faults
        known = {
            key: self._known(key, value, now, before.get(key))
            for key, value in found.present.items()
        }
        for key, fault in before.items():
            if key not in known and self._lingers(fault, now, found):
                known[key] = fault
        for key in before.keys() - known.keys():
            if key.kind == "gpu_lost" and (key.device, key.kind) in found.checked:
                self._returned[key.device] = now
        self._faults = known
        if found.checked is not self._read:
            self._read = found.checked
            devices = {uuid for uuid, _ in found.checked}
            self._checked = found.checked.union(
                each for each in self._checked if each[0] in devices
            )
            self._returned = {uuid: at for uuid, at in self._returned.items() if uuid in devices}
        if snapshot.xids is not self._errors:
            self._errors = snapshot.xids
            self._add_errors(snapshot)
        if any(now.mono_ns - one.at.mono_ns > XID_NS for one in self._xids.values()):
            self._xids = {
                key: one
                for key, one in self._xids.items()
                if now.mono_ns - one.at.mono_ns <= XID_NS
            }

    @property
    def faults(self) -> tuple[KnownFault, ...]:
        """The faults that are present."""
        return tuple(self._faults.values())

    @property
    def returned(self) -> dict[str, Instant]:
        """When each GPU that was lost responded again, by UUID; a copy."""
        return dict(self._returned)

    @property
    def xids(self) -> tuple[KnownXid, ...]:
        """XID errors of the last hour."""
        return tuple(self._xids.values())

    def _known(
        self, key: FaultKey, value: Value, now: Instant, before: KnownFault | None
    ) -> KnownFault:
        again = key.kind == "ecc_uncorrected" and before is not None and value > before.value
        if before is None or again:
            seen = before is not None or (key.device, key.kind) in self._checked
            return KnownFault(key, value, now, seen, now)
        return replace(before, value=value, last=now)

    def _lingers(self, fault: KnownFault, now: Instant, found: Faults) -> bool:
        key = fault.key
        return (
            key.kind == "slowdown"
            and now.mono_ns - fault.last.mono_ns < HOLD_NS
            # A device that is gone has no clocks.
            and (key.device, key.kind) in found.checked
        )

    def _add_errors(self, snapshot: Snapshot) -> None:
        attributions = snapshot.layout.attributions
        for error in snapshot.xids:
            attribution = attributions.get(error.device)
            gpu = error.device if attribution is None else attribution.device.gpu_uuid
            key = gpu, error.code
            before = self._xids.pop(key, None)
            self._xids[key] = _merged(gpu, error, before)
        latest = sorted(self._xids.items(), key=lambda item: item[1].at.mono_ns)
        self._xids = dict(latest[-MOST_XIDS:])


def _merged(gpu: str, error: XidError, before: KnownXid | None) -> KnownXid:
    victims: dict[PartialRef, XidVictim] = {}
    at, left_out = error.at, 0
    if before is not None:
        victims = {one.subject: one for one in before.victims}
        at, left_out = max(at, before.at, key=_time), before.victims_left_out
    for one in error.victims:
        victims.pop(one.subject, None)
        victims[one.subject] = one
    listed = tuple(victims.values())
    more = max(len(listed) - MOST_VICTIMS, 0)
    return KnownXid(gpu, error.code, at, listed[more:], left_out + more)


def _time(at: Instant) -> int:
    return at.mono_ns
