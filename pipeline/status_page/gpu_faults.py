"""Find the faults of GPUs in a snapshot: errors of the memory, slowdowns, requests of the driver.

The clocks of every busy or idle card are reduced by the software power cap and by idleness, so
these reasons are no faults.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from pipeline.model import Attribution, Layout, Snapshot, Value
from pipeline.status_page.use_format import LARGEST

FaultKind: TypeAlias = Literal[
    "gpu_lost",
    "ecc_uncorrected",
    "row_remap_failed",
    "row_remap_pending",
    "retired_pages_pending",
    "sram_errors_exceeded",
    "recovery_action",
    "slowdown",
    "conflict",
]
"""Kinds of faults. `docs/status.md` explains them."""

_KINDS: Final[Mapping[str, FaultKind]] = {
    "ecc_uncorrected_volatile": "ecc_uncorrected",
    "row_remap_failed": "row_remap_failed",
    "row_remap_pending": "row_remap_pending",
    "retired_pages_pending": "retired_pages_pending",
    "sram_errors_exceeded": "sram_errors_exceeded",
    "recovery_action": "recovery_action",
}
"""Kind of the fault that is present while a field is above 0."""

_UP: Final = "gpu_up"
_MASK: Final = "clock_throttle_reasons"
_ACTIVE: Final = "clock_throttle_active"

_SLOWDOWN: Final = "hw_slowdown"
_CAUSES: Final = {"sw_thermal": 0x20, "hw_thermal": 0x40, "hw_power_brake": 0x80}
_REASONS: Final = {_SLOWDOWN: 0x8, **_CAUSES}
"""Reasons that are faults, with their bits in NVML's mask."""


class FaultKey(NamedTuple):
    """What distinguishes a fault from others.

    Attributes:
        device: UUID of the GPU or MIG instance.
        kind: kind of the fault.
        detail: reason of a slowdown, or code of a recovery action; else empty.
    """

    device: str
    kind: FaultKind
    detail: str = ""


class Faults(NamedTuple):
    """What a snapshot shows of faults.

    Attributes:
        present: faults with their value: a count of errors, a code, or 1.
        checked: device and kind of everything that was read, also without a fault.
    """

    present: Mapping[FaultKey, Value]
    checked: frozenset[tuple[str, FaultKind]]


class FaultReader:
    """Reads the faults of snapshots. What depends only on the layout is computed once for each."""

    def __init__(self) -> None:
        self._layout: Layout | None = None
        self._fields: Sequence[tuple[int, str, FaultKind]] = ()
        self._up: Sequence[tuple[int, str]] = ()
        self._clocks: Sequence[tuple[int, str, str]] = ()
        self._static: Mapping[FaultKey, Value] = {}
        self._checked: frozenset[tuple[str, FaultKind]] = frozenset()

    def read(self, snapshot: Snapshot) -> Faults:
        """Return the faults of a snapshot."""
        if snapshot.layout is not self._layout:
            self._index(snapshot.layout)
        readings = snapshot.readings
        found = dict(self._static)
        for at, uuid in self._up:
            if readings[at].value != 1:
                found[FaultKey(uuid, "gpu_lost")] = 1
        for at, uuid, kind in self._fields:
            if 0 < (value := readings[at].value) <= LARGEST:
                detail = str(int(value)) if kind == "recovery_action" else ""
                found[FaultKey(uuid, kind, detail)] = value
        reasons: defaultdict[str, set[str]] = defaultdict(set)
        for at, uuid, reason in self._clocks:
            reasons[uuid] |= _active(reason, readings[at].value)
        for uuid, active in reasons.items():
            # The hardware sets this bit together with the cause, if it knows the cause.
            shown = active - {_SLOWDOWN} if active & _CAUSES.keys() else active
            found |= {FaultKey(uuid, "slowdown", reason): 1 for reason in shown}
        return Faults(found, self._checked)

    def _index(self, layout: Layout) -> None:
        self._layout = layout
        fields, up, clocks = [], [], []
        for at, series in enumerate(layout.series):
            device = series.attribution.device
            if device.mig is not None:
                continue
            if series.field == _UP:
                up.append((at, device.uuid))
            elif series.field == _MASK:
                clocks.append((at, device.uuid, ""))
            elif series.field == _ACTIVE:
                if (reason := dict(series.attrs).get("reason", "")) in _REASONS:
                    clocks.append((at, device.uuid, reason))
            elif (kind := _KINDS.get(series.field)) is not None and not series.attrs:
                fields.append((at, device.uuid, kind))
        self._fields, self._up, self._clocks = fields, up, clocks
        self._static = dict(_of_attributions(layout.attributions))
        checked: set[tuple[str, FaultKind]] = {(uuid, kind) for _, uuid, kind in fields}
        checked |= {(uuid, "slowdown") for _, uuid, _ in clocks}
        checked |= {(uuid, "gpu_lost") for _, uuid in up}
        for uuid, one in layout.attributions.items():
            checked.add((uuid, "conflict"))
            if one.present:
                checked.add((uuid, "gpu_lost"))
        self._checked = frozenset(checked)


def _of_attributions(
    attributions: Mapping[str, Attribution],
) -> Iterator[tuple[FaultKey, Value]]:
    for uuid, one in attributions.items():
        if not one.present and one.device.mig is None:
            yield FaultKey(uuid, "gpu_lost"), 1
        if one.conflicts:
            yield FaultKey(uuid, "conflict"), one.conflicts


def _active(reason: str, value: Value) -> set[str]:
    """Return the active reasons: of a mask, or the one of a reading that is 1."""
    if reason:
        return {reason} if value > 0 else set()
    try:
        mask = int(value)
    except (OverflowError, ValueError):
        return set()
    return {name for name, bit in _REASONS.items() if mask & bit}
