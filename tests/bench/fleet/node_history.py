"""The history of a simulated node, as the batches that its podgpu writes to its ledger."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final, TypeAlias

from pipeline.ledger.schema import HOUR_NS
from pipeline.ledger.usage_delta import Amounts
from pipeline.ledger.write_batch import Batch, HoldingRow
from pipeline.model import DeviceUsage, Evidence, Holding, Instant, PartialRef, PodInfo
from pipeline.model.ledger_usage import Gap
from tests.bench.fleet.node_plan import DAY_NS, LedgerSpan, NodePlan
from tests.bench.fleet.pod_timeline import Piece, PodTimeline, slots_of

_Span: TypeAlias = tuple[int, int]
_LateGain: TypeAlias = tuple[int, str, PartialRef | None, Amounts]

_DOWN_CHANCE: Final = 0.05
"""Chance of a day on which podgpu is down for a while; that of a blind device is the same."""

_UNKNOWN_CHANCE: Final = 0.03
"""Chance of a day with some hours in which no source reports holders."""

_LATE_CHANCE: Final = 0.2
"""Chance of a day on which the usage of an hour is counted after the hour was archived."""


@dataclass(slots=True)
class _Day:
    """What happens to a node on a day: gaps by device, and the time with unknown holders."""

    gaps: dict[str, tuple[int, int, str]]
    unknown: _Span


class NodeHistory:
    """Makes the batches of one ledger of a node, in the order of time.

    Each batch adds up exactly: for each hour and device, the held time of the containers and the
    unattributed time are the accounted time.

    Args:
        plan: the node.
        span: the time of the ledger.
        seed: seed of the fleet.
    """

    def __init__(self, plan: NodePlan, span: LedgerSpan, seed: int) -> None:
        self._plan = plan
        self._span = span
        self._chance = chance = Random(f"history {seed} {plan.name} {span.number}")
        self._lines = [PodTimeline(slot, chance, span.start_ns) for slot in slots_of(plan)]
        self._active: list[Piece] = []
        self._late: list[_LateGain] = []
        self._facts: dict[PartialRef, PodInfo] = {}
        self._day, self._today = -1, _Day({}, (0, 0))

    def batches(self, step_hours: int = 24) -> Iterator[tuple[int, Batch]]:
        """Yield the end of the time of each batch, in nanoseconds of Unix time, and the batch.

        Args:
            step_hours: hours of a batch; 24 is a multiple of it.
        """
        start, step = self._span.start_ns, step_hours * HOUR_NS
        first = Batch(devices={one.uuid: one for one in self._plan.devices})
        first.begin(start)
        batch = first
        while start < self._span.end_ns:
            end = min(start // step * step + step, self._span.end_ns)
            self._fill(batch, start, end)
            yield end, batch
            batch, start = Batch(), end

    def _fill(self, batch: Batch, start: int, end: int) -> None:
        chance = self._chance
        batch.token = f"{end:x}"
        self._begin_day(start // DAY_NS)
        for hour, device, container, gain in self._late:
            batch.add(hour, device, container, gain)
        self._late = []
        batch.pods |= self._facts
        self._facts = {}
        for line in self._lines:
            for piece in line.started_before(end):
                self._active.append(piece)
                batch.pods[piece.subject] = piece.info
                if piece.late_facts:
                    self._facts[piece.subject] = piece.info
                    batch.pods[piece.subject] = PodInfo(
                        piece.info.uid, piece.info.namespace, piece.info.name
                    )
        held: dict[tuple[int, str], int] = {}
        for piece in self._active:
            self._count(batch, piece, max(start, piece.start_ns), min(end, piece.end_ns), held)
            batch.holdings[piece.own_id] = _row(piece, end)
        self._active = [piece for piece in self._active if piece.end_ns >= end]
        self._count_devices(batch, start, end, held)
        if batch.hours and chance.random() < _LATE_CHANCE * (end - start) / DAY_NS:
            self._delay(batch)
        for known in self._plan.devices:
            batch.states[known.uuid] = _state(known.uuid, self._span.start_ns, end)

    def _begin_day(self, day: int) -> None:
        if day == self._day:
            return
        chance, midnight = self._chance, day * DAY_NS
        gaps: dict[str, tuple[int, int, str]] = {}
        timed = [device.uuid for device in self._plan.timed]
        begin = midnight + chance.randrange(8 * HOUR_NS)
        length = chance.randrange(HOUR_NS // 20, 3 * HOUR_NS)
        if chance.random() < _DOWN_CHANCE:
            gaps = dict.fromkeys(timed, (begin, begin + length, "down"))
        elif chance.random() < _DOWN_CHANCE:
            gaps = {chance.choice(timed): (begin, begin + length, "blind")}
        unknown = (0, 0)
        if chance.random() < _UNKNOWN_CHANCE:
            noon = midnight + 12 * HOUR_NS + chance.randrange(HOUR_NS)
            unknown = (noon, noon + chance.randrange(8 * HOUR_NS))
        self._day, self._today = day, _Day(gaps, unknown)

    def _count(
        self, batch: Batch, piece: Piece, start: int, end: int, held: dict[tuple[int, str], int]
    ) -> None:
        """Add the usage of a container on a device in a span to the batch, hour by hour."""
        gap, unknown = self._today.gaps.get(piece.device), self._today.unknown
        chance, energy_known = self._chance.random, self._plan.has_energy
        at = start
        while at < end:
            hour = at // HOUR_NS
            until = min(hour * HOUR_NS + HOUR_NS, end)
            without = _overlap(at, until, gap[0], gap[1]) if gap else 0
            counted = until - at - without
            own = (counted - _overlap(at, until, *unknown)) // piece.parts
            piece.gap_ns += without
            piece.counted_ns += counted
            if own > 0:
                # The busy time of a few hours is unknown although that of the others is known.
                wave = chance()
                busy = None
                if piece.busy_ppm is not None and wave > 0.002:
                    busy = int(own * piece.busy_ppm * (0.8 + wave / 5)) // 1_000_000
                    piece.busy_ns = (piece.busy_ns or 0) + busy
                energy = None
                if energy_known:
                    energy = int(own * piece.watts * (0.9 + wave / 5)) // 1_000_000
                    piece.energy_mj = (piece.energy_mj or 0) + energy
                piece.held_ns += own
                contested = (busy or 0) * (piece.parts - 1) // piece.parts
                gain = Amounts(own, busy, energy, contested, contested // 8)
                batch.add(hour, piece.device, piece.subject, gain)
                key = hour, piece.device
                held[key] = held.get(key, 0) + own
            at = until

    def _count_devices(
        self, batch: Batch, start: int, end: int, held: dict[tuple[int, str], int]
    ) -> None:
        """Add the unattributed usage and the gaps of all devices in a span to the batch."""
        plan, today = self._plan, self._today
        for device in plan.timed:
            uuid = device.uuid
            gap = today.gaps.get(uuid)
            at = start
            while at < end:
                hour = at // HOUR_NS
                until = min(hour * HOUR_NS + HOUR_NS, end)
                without = _overlap(at, until, gap[0], gap[1]) if gap else 0
                free = until - at - without - held.get((hour, uuid), 0)
                if without:
                    batch.gap_hours[hour, uuid] += without
                if unknown := _overlap(at, until, *today.unknown):
                    batch.unknown_hours[hour, uuid] += unknown
                energy = free * plan.idle_watts // 1_000_000 if plan.has_energy else None
                batch.add(hour, uuid, None, Amounts(free, unknown // 3, energy))
                at = until
            if gap and start <= gap[1] < end:
                own_id = f"{uuid[4:20]}{gap[0]:x}"
                batch.gaps[own_id] = Gap(uuid, *gap)
        if plan.instances and plan.has_energy:
            for hour in range(start // HOUR_NS, -(-end // HOUR_NS)):
                energy = 3600 * plan.idle_watts * 1000
                batch.add(hour, plan.gpus[-1].uuid, None, Amounts(0, None, energy))

    def _delay(self, batch: Batch) -> None:
        """Move a part of the usage of one hour to the next batch."""
        key = self._chance.choice(list(batch.hours))
        whole = batch.hours[key]
        later = [None if each is None else each // 3 for each in whole[1:]]
        rest = [None if each is None else each - each // 3 for each in whole[1:]]
        part = Amounts(whole.held_ns // 3, *later)
        batch.hours[key] = Amounts(whole.held_ns - whole.held_ns // 3, *rest)
        hour, device, container = key
        unknown = batch.unknown_hours[hour, device]
        if container is None and unknown > batch.hours[key][0]:
            batch.unknown_hours[hour, device] = batch.hours[key][0]
        self._late.append((*key, part))


def _overlap(start: int, end: int, since: int, until: int) -> int:
    return max(min(end, until) - max(start, since), 0)


def _row(piece: Piece, now_ns: int) -> HoldingRow:
    """Return the holding of a piece; it ends if its end is before this time."""
    ended = piece.end_ns < now_ns
    until = min(piece.end_ns, now_ns)
    busy = piece.busy_ns
    one = Holding(
        piece.device,
        piece.subject,
        piece.info,
        "kubelet",
        Evidence.KUBELET_IDS,
        Instant(piece.start_ns, piece.start_ns),
        Instant(piece.end_ns, piece.end_ns) if ended else None,
        piece.counted_ns,
        piece.gap_ns,
        piece.held_ns,
        busy,
        piece.energy_mj,
        piece.memory_bytes + piece.memory_bytes // 8,
        piece.memory_bytes * piece.counted_ns,
        piece.counted_ns,
        0 if busy is None else piece.counted_ns,
        None if busy is None else 990_000,
        piece.xids,
        1 if ended else 0,
        piece.own_id,
    )
    return HoldingRow(one, piece.start_ns, until)


def _state(uuid: str, start_ns: int, end_ns: int) -> DeviceUsage:
    start, at = Instant(start_ns, start_ns), Instant(end_ns, end_ns)
    return DeviceUsage(uuid, start, at, (), 0, 0, 0, None, None, 0, 0, None, None, id=uuid)
