"""The rows of a GPU: the GPU, its holders with their own use, its MIG instances. Pure.

A row has a cell for each value that is known. `table_layout` and `narrow_layout` draw the rows.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from pipeline.status_page.display_text import (
    access_text,
    busy_text,
    conflicts_text,
    held,
    holder_name,
    idle_seconds,
    kilowatt_hours,
    part,
    share_text,
    span,
    unheld_text,
    unknown_reason,
)
from pipeline.status_page.html.device_table import FULL, HOT_CELSIUS, NEAR_CELSIUS
from pipeline.status_page.html.graphs import LEAST_STEPS
from pipeline.status_page.status_document import (
    GpuStatus,
    HolderStatus,
    InstanceStatus,
    StatusDocument,
)
from pipeline.status_page.use_format import ContainerStatus, ProcessStatus, UseStatus
from podgpu.cli.top.device_order import Device
from podgpu.cli.top.row import Cell, Graph, Kind, Row
from podgpu.cli.top.styled_text import EMPTY, Line, Style, styled
from podgpu.cli.top.ui_state import State

MOST: Final = 3
"""Maximum number of holders of a device that are shown, unless the user wants to see all."""

_GIB: Final = 1 << 30
_UNKNOWN: Final = "-"
_MAX_SECONDS: Final = 99 * 86_400
"""Maximum number of seconds shown for a lower bound: the column has four characters."""

_LONGEST_BOUND: Final = 5
_LEAST_ENERGY: Final = "<0.1 Wh"
"""Energy that is not 0 and has no digits in kilowatt hours."""

_LEAST_UNATTRIBUTED: Final = 0.01
"""Part of the memory from which on memory of no known container is shown, as on the page."""


def steps_of(status: StatusDocument) -> int:
    """Return the width of the graphs in steps, which is the same for all devices."""
    devices = [device for gpu in status.gpus or () for device in (gpu, *gpu.instances)]
    hours = [device.history for device in devices if device.history is not None]
    return max((len(hour.utilization_percent) for hour in hours), default=0)


def rows_of(
    gpu: GpuStatus, below: Sequence[InstanceStatus], state: State, now: datetime, steps: int
) -> Iterator[Row]:
    """Yield the rows of a GPU, and of its instances that are shown.

    Args:
        gpu: the GPU.
        below: its instances that the filter selects.
        state: what the user has selected.
        now: time of the status document.
        steps: width of the graphs, see `steps_of`.
    """
    yield Row(
        kind=Kind.GPU,
        depth=0,
        name=gpu.uuid if gpu.index is None else str(gpu.index),
        detail=(gpu.name or "").removeprefix("NVIDIA "),
        remark=_remark(gpu),
        cells={**_figures(gpu), **_board(gpu)},
        graphs=_graphs(gpu, steps),
    )
    yield from _containers(gpu, state, now, 1)
    for each in () if state.folded else below:
        yield from _instance(each, state, now, steps)
    yield from map(_note, _reasons(gpu, () if state.folded else below))


def _instance(each: InstanceStatus, state: State, now: datetime, steps: int) -> Iterator[Row]:
    place = f"{each.gpu_instance_id}"
    if each.compute_instance_id is not None:
        place += f"/{each.compute_instance_id}"
    name, holders = f"{each.profile or 'MIG'} {place}", each.holders or ()
    if len(holders) == 1 and not (each.users or each.holders_left_out or each.conflicts):
        # The use of an instance is that of its only holder: both are in one row.
        alone = _container_row(holders[0], state, now, 1)
        yield replace(
            alone,
            kind=Kind.INSTANCE,
            lead=name,
            remark=_idle(each),
            cells={**alone.cells, **_figures(each)},
            graphs=_graphs(each, steps),
        )
        yield from _details(each, holders, state, now, 2)
        return
    yield Row(Kind.INSTANCE, 1, name, "", _remark(each), _figures(each), _graphs(each, steps))
    yield from _containers(each, state, now, 2)


def _remark(device: Device) -> Line:
    """Return words about the state of a device: lost, free, idle; how many instances are held."""
    found = EMPTY
    if device.state == "lost":
        found = styled("LOST", Style.CRITICAL)
    elif device.state == "unknown" and isinstance(device, GpuStatus):
        found = styled("state unknown", Style.WARNING)
    if device.holders or device.users:
        return found or _idle(device)
    if isinstance(device, GpuStatus) and device.instances:
        # Short, because the name of the GPU is beside it.
        return found or styled(held(device).replace(" instances held", " held"), Style.SOFT)
    if device.holders is None:
        return found  # a note says why they are unknown
    blank = styled(" ") if found else EMPTY
    return (*found, *blank, *styled(unheld_text(device), Style.SOFT))


def _idle(device: Device) -> Line:
    seconds = idle_seconds(device) if device.holders else 0
    return styled(f"idle {_short(span(seconds))}", Style.WARNING) if seconds else EMPTY


def _figures(device: Device) -> dict[Cell, Line]:
    use, total = device.utilization_percent, device.memory_total_bytes
    return {
        Cell.USE: styled(_UNKNOWN if use is None else f"{use:.0f}%"),
        Cell.MEMORY: styled(_memory(device.memory_used_bytes, total)),
    }


def _board(gpu: GpuStatus) -> dict[Cell, Line]:
    power = _UNKNOWN if gpu.power_watts is None else f"{gpu.power_watts:.0f}"
    if gpu.power_limit_watts is not None:
        power += f"/{gpu.power_limit_watts:.0f}"
    celsius, style = gpu.temperature_celsius, Style.PLAIN
    if celsius is not None:
        limit = gpu.temperature_slowdown_celsius
        if limit is not None and celsius >= limit:
            style = Style.CRITICAL
        elif celsius >= (HOT_CELSIUS if limit is None else limit - NEAR_CELSIUS):
            style = Style.WARNING
    return {
        Cell.POWER: styled(power if power == _UNKNOWN else f"{power} W"),
        Cell.TEMPERATURE: styled(_UNKNOWN if celsius is None else f"{celsius:.0f}°C", style),
    }


def _graphs(device: Device, steps: int) -> dict[Cell, Graph]:
    """Return the graphs of a device. Without its last hour, they show only the present."""
    hour, total = device.history, device.memory_total_bytes
    use: Sequence[float | None] = (device.utilization_percent,)
    memory: Sequence[float | None] = (device.memory_used_bytes,)
    filled = part(device.memory_used_bytes, total)
    is_full = filled is not None and filled >= FULL
    found: dict[Cell, Graph] = {}
    if hour is not None:
        # The right edge is the present.
        before = [None] * max(max(steps, LEAST_STEPS) - len(hour.utilization_percent), 0)
        use = (*before, *hour.utilization_percent)
        memory = (*before, *hour.memory_used_bytes)
        if isinstance(device, GpuStatus) and hour.power_watts is not None:
            # Without a limit the highest value is the top.
            top = device.power_limit_watts or max(map(_or_0, hour.power_watts), default=0.0)
            found[Cell.POWER_GRAPH] = Graph(_parts((*before, *hour.power_watts), top), Style.POWER)
    found[Cell.USE_GRAPH] = Graph(_parts(use, 100), Style.USE)
    found[Cell.MEMORY_GRAPH] = Graph(
        _parts(memory, total), Style.WARNING if is_full else Style.MEMORY
    )
    return found


def _parts(values: Iterable[float | None], whole: float | None) -> list[float | None]:
    return [part(value, whole) for value in values]


def _or_0(value: float | None) -> float:
    return value or 0.0


def _containers(device: Device, state: State, now: datetime, depth: int) -> Iterator[Row]:
    """Yield the rows of the containers that hold or use a device, and what is known of it."""
    holders, users = device.holders or (), device.users
    if not state.whole and len(holders) > MOST:
        holders = holders[: MOST - 1]
    if not state.whole and len(users) > MOST:
        users = users[: MOST - 1]
    for holder in holders:
        yield _container_row(holder, state, now, depth)
        if state.evidence:
            yield _note(styled(_origin(holder), Style.SOFT), depth + 1)
    if more := len(device.holders or ()) - len(holders) + device.holders_left_out:
        yield Row(Kind.CONTAINER, depth, remark=styled(f"and {more} more", Style.SOFT))
    for user in users:
        pod, container = _container_name(user)
        cells = {**_use(user.use), Cell.HELD: styled("not held", Style.WARNING)}
        yield Row(Kind.CONTAINER, depth, pod, detail=container, cells=cells, whole=state.whole)
    if more := len(device.users) - len(users) + device.users_left_out:
        text = f"and {more} more that do not hold it"
        yield Row(Kind.CONTAINER, depth, remark=styled(text, Style.SOFT))
    yield from _details(device, (), state, now, depth)


def _details(
    device: Device, origins: Sequence[HolderStatus], state: State, now: datetime, depth: int
) -> Iterator[Row]:
    """Yield unattributed memory, conflicts, and what the user has requested.

    Args:
        device: the device.
        origins: holders whose source is to be named with the device.
        state: what the user has selected.
        now: time of the status document.
        depth: depth of the rows.
    """
    other = device.memory_unattributed_bytes
    filled = part(other, device.memory_total_bytes)
    if filled is not None and filled >= _LEAST_UNATTRIBUTED:
        remark = styled("no known container", Style.WARNING)
        yield Row(Kind.CONTAINER, depth, remark=remark, cells={Cell.MEMORY: styled(_gib(other))})
    if text := conflicts_text(device):
        yield _note(styled(text, Style.WARNING), depth)
    if text := access_text(device):
        yield _note(styled(text, Style.SOFT), depth)
    if state.evidence:
        for holder in origins:
            yield _note(styled(_origin(holder), Style.SOFT), depth)
        for one in device.access:
            text = f"access of {holder_name(one)}: {one.source}, {_words(one.evidence)}"
            yield _note(styled(text, Style.SOFT), depth)
        yield _note(styled(device.uuid, Style.SOFT), depth)
        if isinstance(device, GpuStatus):
            yield from _xids(device, now, depth)
    if state.processes:
        yield from _processes(device, depth)


def _xids(gpu: GpuStatus, now: datetime, depth: int) -> Iterator[Row]:
    for xid in gpu.xids:
        count = "" if xid.errors is None else f", {xid.errors} times"
        age = "" if xid.last_seen is None else f", last {_ago(now, xid.last_seen)}"
        meaning = "" if xid.meaning is None else f": {xid.meaning}"
        yield _note(styled(f"XID {xid.code}{count}{age}{meaning}", Style.SOFT), depth)


def _ago(now: datetime, then: datetime) -> str:
    return f"{span((now - then).total_seconds())} ago"


def _processes(device: Device, depth: int) -> Iterator[Row]:
    if device.processes is None:
        yield _note(styled("processes unknown: they could not be listed", Style.SOFT), depth)
    for one in device.processes or ():
        yield _process(one, depth)
    if device.processes_left_out:
        yield _note(styled(f"and {device.processes_left_out} more processes", Style.SOFT), depth)


def _process(one: ProcessStatus, depth: int) -> Row:
    memory = _UNKNOWN if one.memory_used_bytes is None else _gib(one.memory_used_bytes)
    text = f"process {one.pid}, {one.kind}"
    cells = {Cell.MEMORY: styled(memory, Style.SOFT)}
    return Row(Kind.PROCESS, depth, remark=styled(text, Style.SOFT), cells=cells)


def _container_row(holder: HolderStatus, state: State, now: datetime, depth: int) -> Row:
    seconds = (now - holder.since).total_seconds()
    if not holder.since_known:
        seconds = min(seconds, _MAX_SECONDS)
    since = _short(span(seconds)) + ("" if holder.since_known else "+")
    pod, container = _container_name(holder)
    cells = {Cell.HELD: styled(since)}
    if share := share_text(holder):
        cells[Cell.SHARE] = styled(share)
    if holder.use is not None:
        cells |= _use(holder.use)
    return Row(Kind.CONTAINER, depth, pod, detail=container, cells=cells, whole=state.whole)


def _use(use: UseStatus) -> dict[Cell, Line]:
    """Return the cells of what a container itself uses."""
    memory, energy = use.memory_used_bytes, use.energy_joules
    return {
        Cell.USE: styled(busy_text(use, "%") or _UNKNOWN),
        Cell.MEMORY: styled(_UNKNOWN if memory is None else _gib(memory)),
        Cell.ENERGY: styled(_UNKNOWN if energy is None else _energy(energy, use.incomplete)),
    }


def _energy(joules: float, incomplete: bool) -> str:
    """Return an energy in at most ten characters, with a `+` if it is a lower bound."""
    text = kilowatt_hours(joules)
    if text.startswith("<"):
        return _LEAST_ENERGY
    if not incomplete:
        return text
    # The number is rounded down if there is no room for its last digit.
    number, unit = text.split()
    return f"{number[:_LONGEST_BOUND]}\N{NO-BREAK SPACE}{unit}+"


def _container_name(one: ContainerStatus) -> tuple[str, str]:
    """Return the name of the pod, and that of the container in parentheses or an empty text.

    Of a job, the second is its user; of a container without a pod its Compose service or image.
    """
    whole = holder_name(one)
    if isinstance(one, HolderStatus) and one.facts:
        facts = (one.facts.get(name) for name in ("user", "compose_service", "image"))
        main = next(filter(None, facts), "")
        return whole, f"({main})" if main else ""
    container = f"({one.container})" if one.container else ""
    return whole.removesuffix(container).rstrip(), container


def _origin(holder: HolderStatus) -> str:
    age = holder.age_seconds
    confirmed = "" if age is None else f", confirmed {span(age)} ago"
    return f"reported by {holder.source}: {_words(holder.evidence)}{confirmed}"


def _words(evidence: str) -> str:
    return evidence.replace("_", " ")


def _reasons(gpu: GpuStatus, below: Sequence[InstanceStatus]) -> Iterator[Line]:
    """Yield why values are unknown: of the GPU, and those that its instances have in common."""
    missing = {
        # Of a GPU with instances, only the instances have this value.
        "utilization": gpu.utilization_percent is None and not below,
        "memory": gpu.memory_used_bytes is None,
        "power": gpu.power_watts is None,
        "temperature": gpu.temperature_celsius is None,
        "holders": gpu.holders is None,
    }
    yield from _explained(gpu, [what for what, absent in missing.items() if absent], "")
    if below and gpu.state != "lost":
        missing = {
            "utilization": all(each.utilization_percent is None for each in below),
            "memory": all(each.memory_used_bytes is None for each in below),
        }
        absent = [what for what, is_absent in missing.items() if is_absent]
        yield from _explained(below[0], absent, " of its instances")


def _explained(device: Device, missing: Sequence[str], whose: str) -> Iterator[Line]:
    reasons: dict[str, list[str]] = {}
    for what in missing:
        word = "busy" if what == "utilization" else what
        reasons.setdefault(unknown_reason(device, what), []).append(word)
    for reason, names in reasons.items():
        text = f"{', '.join(names)}{whose} unknown: {reason}"
        yield styled(text, Style.SOFT)


def _note(line: Line, depth: int = 1) -> Row:
    return Row(Kind.NOTE, depth, remark=line)


def _memory(used: int | None, total: int | None) -> str:
    parts = [_UNKNOWN if count is None else f"{count / _GIB:.1f}" for count in (used, total)]
    return _UNKNOWN if parts == [_UNKNOWN] * 2 else "/".join(parts)


def _gib(count: int | None) -> str:
    if count is None:
        return _UNKNOWN
    gib = count / _GIB
    return "<0.1" if 0 < gib < 0.05 else f"{gib:.1f}"


def _short(text: str) -> str:
    """Return a duration without blanks: `3h` instead of `3 h`."""
    return text.replace(" ", "").replace("min", "m")
