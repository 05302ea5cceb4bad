"""Build the GPUs and MIG instances of a status document."""

from collections.abc import Mapping, Sequence
from itertools import islice
from math import isfinite
from typing import Any, Final, NamedTuple

from msgspec import UNSET

from pipeline.base.safe_text import line
from pipeline.model import NS, Access, Attribution, Holder, Snapshot, Value, owner_facts
from pipeline.status_page.container_use import DeviceUses, names, processes, text_or_none
from pipeline.status_page.daemon_state import StatusInput, date
from pipeline.status_page.last_hour import STEP_NS
from pipeline.status_page.status_document import (
    AccessStatus,
    GpuStatus,
    HolderStatus,
    InstanceStatus,
    State,
    XidStatus,
)
from pipeline.status_page.use_format import LARGEST, HistoryStatus
from pipeline.status_page.xid_status import MOST_XIDS, xids

MOST_DEVICES: Final = 1024
"""Maximum number of GPUs and instances in a document. Further ones are only counted."""

MOST_HOLDERS: Final = 64
"""Maximum number of holders of one device in a document. Further ones are only counted."""

ALL_HOLDERS: Final = 4096
"""Approximate maximum number of holders in a document. With many devices, fewer holders are listed
for each, so that building the document does not take too long."""

MOST_PROCESSES: Final = 32
"""Maximum number of processes of one device in a document. Further ones are only counted."""

_UP: Final = "gpu_up"
_BUSY: Final = "gpu_utilization_percent"
_ENGINE: Final = "graphics_engine_active_ratio"
_USED: Final = "memory_used_bytes"
_TOTAL: Final = "memory_total_bytes"
_POWER: Final = "power_watts"
_LIMITS: Final = ("power_limit_enforced_watts", "power_limit_watts")
_TEMPERATURE: Final = "gpu_temperature_celsius"
_SLOWDOWN: Final = "temperature_slowdown_celsius"
_FIELDS: Final = frozenset(
    {_UP, _BUSY, _ENGINE, _USED, _TOTAL, _POWER, *_LIMITS, _TEMPERATURE, _SLOWDOWN}
)

Values = Mapping[tuple[str, str], Value]
"""Values of readings by UUID and field."""


def gpus(status_input: StatusInput) -> tuple[tuple[GpuStatus, ...] | None, int]:
    """Return the GPUs with their instances, and the number of devices that were left out.

    The GPUs are None if no source has reported devices.
    """
    snapshot = status_input.snapshot
    if snapshot is None:
        return None, 0
    found = snapshot.layout.attributions
    if not found and all(state.devices is None for state in status_input.sources.values()):
        return None, 0
    shown = list(islice(found.values(), MOST_DEVICES))
    limit = min(MOST_HOLDERS, max(ALL_HOLDERS // max(len(shown), 1), 1))
    view = _View(status_input, _values(snapshot), xids(snapshot), limit)
    cards: dict[str, list[Attribution]] = {}
    for one in shown:
        cards.setdefault(one.device.gpu_uuid, []).append(one)
    result = tuple(_gpu(view, uuid, group) for uuid, group in cards.items())
    return result, len(found) - len(shown)


class _View(NamedTuple):
    """Input that is the same for all devices.

    Attributes:
        status_input: state of the daemon.
        values: values of readings.
        xids: XID errors by UUID.
        limit: maximum number of holders of one device, and of containers with access to it.
    """

    status_input: StatusInput
    values: Values
    xids: Mapping[str, Sequence[XidStatus]]
    limit: int


def _values(snapshot: Snapshot) -> Values:
    return {
        (series.attribution.device.uuid, series.field): reading.value
        for series, reading in zip(snapshot.layout.series, snapshot.readings, strict=True)
        if series.field in _FIELDS and not series.attrs
    }


def _gpu(view: _View, uuid: str, group: Sequence[Attribution]) -> GpuStatus:
    """Return a GPU with its instances. `group` has only instances if a source lists only these."""
    whole = next((one for one in group if one.device.mig is None), None)
    below = [one for one in group if one.device.mig is not None]
    device, values = group[0].device, view.values
    errors = view.xids.get(uuid, ())
    state: State = "unknown" if whole is None else _state(whole, values)

    def value(*fields: str) -> float | None:
        found = (_number(values.get((uuid, field))) for field in fields)
        return next((each for each in found if each is not None), None)

    return GpuStatus(
        **_common(view, uuid, whole),
        state=state,
        index=_place(device.index),
        name=text_or_none(device.model),
        power_watts=value(_POWER),
        power_limit_watts=value(*_LIMITS),
        temperature_celsius=value(_TEMPERATURE),
        temperature_slowdown_celsius=value(_SLOWDOWN),
        instances=tuple(_instance(view, one, state) for one in below),
        xids=tuple(errors[:MOST_XIDS]),
        xids_left_out=max(len(errors) - MOST_XIDS, 0),
    )


def _history(view: _View, uuid: str) -> HistoryStatus | None:
    hour = view.status_input.past.hours.get(uuid)
    if hour is None:
        return None
    return HistoryStatus(
        step_seconds=STEP_NS // NS,
        utilization_percent=tuple(_rounded(value) for value in hour.utilization_percent),
        memory_used_bytes=tuple(_whole(value) for value in hour.memory_used_bytes),
        power_watts=None
        if hour.power_watts is None
        else tuple(_rounded(value) for value in hour.power_watts),
    )


def _rounded(value: float | None) -> float | None:
    number = _number(value)
    return None if number is None else round(number, 1)


def _instance(view: _View, one: Attribution, parent: State) -> InstanceStatus:
    place = one.device.mig
    assert place is not None  # noqa: S101 - `below` has only instances
    return InstanceStatus(
        **_common(view, one.device.uuid, one),
        state=parent,
        profile=text_or_none(place.profile),
        gpu_instance_id=min(max(place.gpu_instance_id, 0), LARGEST),
        compute_instance_id=_place(place.compute_instance_id),
    )


def _common(view: _View, uuid: str, one: Attribution | None) -> dict[str, Any]:
    values, holders_known = view.values, view.status_input.holders_known
    access = one.access if one is not None else ()
    every = one.holders if one is not None and holders_known else ()
    holders = every[: view.limit]
    uses = DeviceUses(view.status_input.snapshot, uuid, view.status_input.past.minute)
    users = uses.without_holding(every)
    running = processes(view.status_input.snapshot, uuid)
    return {
        "uuid": line(uuid),
        "utilization_percent": _utilization(uuid, values),
        "memory_used_bytes": _whole(values.get((uuid, _USED))),
        "memory_total_bytes": _whole(values.get((uuid, _TOTAL))),
        "memory_unattributed_bytes": uses.memory_unattributed_bytes,
        "holders": tuple(_holder(view, each, uses) for each in holders) if holders_known else None,
        "holders_left_out": len(every) - len(holders),
        "conflicts": one.conflicts if one is not None else 0,
        "access": tuple(AccessStatus(**_container(each)) for each in access[: view.limit]),
        "access_left_out": max(len(access) - view.limit, 0),
        "users": users[: view.limit],
        "users_left_out": max(len(users) - view.limit, 0),
        "processes": None if running is None else running[:MOST_PROCESSES],
        "processes_left_out": max(len(running or ()) - MOST_PROCESSES, 0),
        "history": _history(view, uuid),
    }


def _state(one: Attribution, values: Values) -> State:
    if not one.present:
        return "lost"
    up = values.get((one.device.uuid, _UP))
    if up is not None:
        return "up" if up == 1 else "lost"
    # Other exporters do not report whether a GPU is up. A current value of these fields shows it.
    answers = any((one.device.uuid, field) in values for field in (_BUSY, _USED, _POWER))
    return "up" if answers else "unknown"


def _utilization(uuid: str, values: Values) -> float | None:
    busy = _number(values.get((uuid, _BUSY)))
    if busy is not None:
        return busy
    engine = _number(values.get((uuid, _ENGINE)))
    return None if engine is None else round(engine * 100, 1)


def _holder(view: _View, holder: Holder, uses: DeviceUses) -> HolderStatus:
    status_input = view.status_input
    source = status_input.sources.get(holder.source)
    # The energy is that of the holding. Its age must be of the same time.
    start = uses.start_of(holder.subject) or holder.since
    since = min(holder.since, start, key=lambda each: each.mono_ns)
    facts = {name: line(text) for name, text in owner_facts(holder.subject, holder.pod).items()}
    return HolderStatus(
        **_container(holder),
        since=date(status_input.now.wall_of(since)),
        since_known=not holder.since_observed,
        share=holder.share,
        replicas=len(holder.replicas) or None,
        age_seconds=status_input.age(source.confirmed_at if source is not None else None),
        use=uses.of(holder.subject),
        facts=facts or UNSET,
    )


def _container(one: Holder | Access) -> dict[str, Any]:
    return names(one.subject) | {
        "source": line(one.source),
        "evidence": one.evidence.name.lower(),
    }


def _place(number: int | None) -> int | None:
    return number if number is not None and 0 <= number <= LARGEST else None


def _number(value: Value | None) -> float | None:
    try:
        known = value is not None and isfinite(value) and abs(value) <= LARGEST
        return float(value) if known and value is not None else None
    except OverflowError:  # an integer that is too large for a float
        return None


def _whole(value: Value | None) -> int | None:
    number = _number(value)
    return None if number is None or number < 0 else int(number)
