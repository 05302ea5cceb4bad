"""Calculate the usage of the sample data: what the ledger's writer writes. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise
from typing import Final

from pipeline.ledger.usage_delta import Amounts
from pipeline.ledger.write_batch import Batch, HoldingRow
from pipeline.model import (
    NS,
    ContainerUsage,
    Device,
    DeviceUsage,
    Evidence,
    Holding,
    Instant,
    PartialRef,
)
from pipeline.model.devices import compute_slices
from pipeline.model.ledger_usage import Gap
from pipeline.usage.contest import UNCONTESTED, contests
from podgpu.cli.demo.recorded_node import RecordedNode
from podgpu.cli.demo.schedule import DAY_NS, HOUR_NS, Stay, stays, times
from podgpu.cli.demo.workloads import ABSENCES, CONFLICTS, DAYS, IDLE_WATTS

SOURCE: Final = "kubelet"
"""Name of the source of the sample data's claims."""

_NJ_PER_MJ: Final = 10**6
_PPM: Final = 1_000_000
_PEAK: Final = 1.08
"""The largest busy part of an interval between two samples, as a multiple of the mean."""

_SLICES: Final = 7
"""Compute slices of a whole GPU."""


def sample_batch(node: RecordedNode, now: Instant) -> Batch:
    """Return the usage of all devices of a node in the `DAYS` days before now.

    Args:
        node: the devices and pods of the recording.
        now: the time of the last sample.
    """
    batch = Batch()
    batch.begin(now.wall_ns - DAYS * DAY_NS)
    batch.devices.update({one.uuid: one for one in node.devices})
    shared = [one.mig.parent_uuid for one in node.devices if one.mig is not None]
    found = stays(node, now.wall_ns)
    for device in node.devices:
        own = [one for one in found if one.device == device.uuid]
        _Account(device, node, own, now, batch, has_instances=device.uuid in shared).write()
    return batch


@dataclass(slots=True)
class _Account:
    """The account of one device, as it grows from segment to segment of time.

    Attributes:
        device: the device.
        node: the node of the recording.
        stays: the stays on the device.
        now: the time of the last sample.
        batch: where the usage is written to.
        has_instances: whether the device is a GPU with MIG instances, which has only energy.
    """

    device: Device
    node: RecordedNode
    stays: Sequence[Stay]
    now: Instant
    batch: Batch
    has_instances: bool
    elapsed_ns: int = 0
    unheld_ns: int = 0
    unknown_ns: int = 0
    rest_mj: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)
    unknown: list[tuple[int, int]] = field(default_factory=list)

    def write(self) -> None:
        """Add the device's hours, gaps, holdings and account to the batch."""
        now_ns, index, uuid = self.now.wall_ns, self.device.index, self.device.uuid
        if not self.has_instances:
            for number, each in enumerate(ABSENCES):
                if index in each.gpus:
                    start_ns = now_ns - round(each.since * DAY_NS)
                    end_ns = start_ns + round(each.minutes * 60 * NS)
                    self.gaps.append((start_ns, end_ns))
                    gap = Gap(uuid, start_ns, end_ns, each.reason)
                    self.batch.gaps[_id("gap", uuid, number)] = gap
        if self.device.mig is None:
            self.unknown += [
                (start_ns, end_ns or now_ns)
                for each in CONFLICTS
                if each.gpu == index
                for start_ns, end_ns in times(each.runs, "conflict", self.node, now_ns)
            ]
        for start_ns, end_ns in self._segments():
            self._add(start_ns, end_ns)
        for stay in self.stays:
            self.batch.pods[stay.subject] = stay.pod
            holding = self._holding(stay)
            until_ns = stay.end_ns or now_ns
            self.batch.holdings[holding.id] = HoldingRow(holding, stay.start_ns, until_ns)
        self.batch.states[uuid] = self._state()

    def _segments(self) -> Iterator[tuple[int, int]]:
        """Yield the spans of time in which nothing begins or ends, within one hour each."""
        now_ns = self.now.wall_ns
        begin_ns = now_ns - DAYS * DAY_NS
        edges = {begin_ns, now_ns, *range(-(-begin_ns // HOUR_NS) * HOUR_NS, now_ns, HOUR_NS)}
        for stay in self.stays:
            edges |= {stay.start_ns, stay.end_ns or now_ns}
        for span in (*self.gaps, *self.unknown):
            edges.update(span)
        yield from pairwise(sorted(each for each in edges if begin_ns <= each <= now_ns))

    def _add(self, start_ns: int, end_ns: int) -> None:
        hour, uuid, length = start_ns // HOUR_NS, self.device.uuid, end_ns - start_ns
        present = [
            one
            for one in self.stays
            if one.start_ns <= start_ns and (one.end_ns is None or one.end_ns >= end_ns)
        ]
        if _within(start_ns, self.gaps):
            self.batch.gap_hours[hour, uuid] += length
            for stay in present:
                stay.gap_ns += length
            return
        idle_mj = self._idle_watts() * length // _NJ_PER_MJ
        if self.has_instances:
            self.rest_mj += idle_mj
            self.batch.add(hour, uuid, None, Amounts(0, None, idle_mj))
            return
        is_unknown = _within(start_ns, self.unknown)
        holders = [] if is_unknown else [one for one in present if one.workload.claimed]
        free_ns, free_mj = length, idle_mj
        busy = {number: round(length * one.load(start_ns)) for number, one in enumerate(present)}
        uncertain = contests(busy, 0, busy, length)
        for number, stay in enumerate(present):
            held_ns = own_mj = 0
            if holders and stay is holders[-1]:
                # The rest: nothing remains free because of rounding.
                held_ns, own_mj = free_ns, free_mj
            elif stay in holders:
                held_ns, own_mj = length // len(holders), idle_mj // len(holders)
            busy_ns = busy[number]
            free_ns, free_mj = free_ns - held_ns, free_mj - own_mj
            own_mj += stay.workload.watts * busy_ns // _NJ_PER_MJ
            contest = uncertain.get(number, UNCONTESTED)
            self._use(stay, hour, length, Amounts(held_ns, busy_ns, own_mj, *contest))
            stay.contest = stay.contest.plus(contest)
            stay.peak = max(stay.peak, min(stay.load(start_ns) * _PEAK, 1))
        self.elapsed_ns += length
        self.unheld_ns += free_ns
        self.rest_mj += free_mj
        if is_unknown:
            self.unknown_ns += free_ns
            self.batch.unknown_hours[hour, uuid] += free_ns
        self.batch.add(hour, uuid, None, Amounts(free_ns, 0, free_mj))

    def _use(self, stay: Stay, hour: int, length: int, amounts: Amounts) -> None:
        stay.counted_ns += length
        stay.held_ns += amounts.held_ns
        stay.busy_ns += amounts.busy_ns or 0
        stay.energy_mj += amounts.energy_mj or 0
        self.batch.add(hour, stay.device, stay.subject, amounts)

    def _idle_watts(self) -> int:
        """Return the idle power of the device: a MIG instance has that of its slices."""
        if self.device.mig is not None:
            return IDLE_WATTS * (compute_slices(self.device.mig.profile) or 1) // _SLICES
        return IDLE_WATTS // _SLICES if self.has_instances else IDLE_WATTS

    def _moment(self, wall_ns: int) -> Instant:
        return Instant(self.now.mono_ns - (self.now.wall_ns - wall_ns), wall_ns)

    def _holding(self, stay: Stay) -> Holding:
        memory = round(stay.workload.gib * (1 << 30))
        is_claimed = stay.workload.claimed
        return Holding(
            stay.device,
            stay.subject,
            stay.pod,
            SOURCE if is_claimed else "",
            Evidence.KUBELET_IDS if is_claimed else None,
            self._moment(stay.start_ns),
            None if stay.end_ns is None else self._moment(stay.end_ns),
            counted_ns=stay.counted_ns,
            gap_ns=stay.gap_ns,
            held_ns=stay.held_ns,
            busy_ns=stay.busy_ns,
            energy_mj=stay.energy_mj,
            memory_peak_bytes=memory + memory // 16,
            memory_byte_ns=memory * stay.counted_ns,
            memory_ns=stay.counted_ns,
            busy_time_ns=stay.counted_ns,
            busy_peak_ppm=round(stay.peak * _PPM),
            xids=stay.xids,
            id=_id("holding", stay.device, *_names(stay.subject), stay.start_ns),
            contested_ns=stay.contest.contested_ns,
            switching_ns=stay.contest.switching_ns,
        )

    def _state(self) -> DeviceUsage:
        """Return the account that podgpu continues; the pods that have ended are forgotten."""
        running = tuple(
            ContainerUsage(
                one.subject,
                one.pod,
                self._moment(one.start_ns),
                None,
                None,
                one.busy_ns,
                one.held_ns,
                one.energy_mj,
                one.xids,
                self._holding(one),
                _id("container", one.device, *_names(one.subject)),
                contested_ns=one.contest.contested_ns,
                switching_ns=one.contest.switching_ns,
            )
            for one in sorted(self.stays, key=lambda each: each.subject)
            if one.end_ns is None
        )
        ended = [one for one in self.stays if one.end_ns is not None]
        busy_ns = None if self.has_instances else sum(one.busy_ns for one in self.stays)
        return DeviceUsage(
            self.device.uuid,
            self._moment(self.now.wall_ns - DAYS * DAY_NS),
            self.now,
            running,
            None,
            None,
            None,
            busy_ns,
            None if busy_ns is None else 0,
            self.elapsed_ns,
            self.unheld_ns,
            self.rest_mj + sum(one.energy_mj for one in self.stays),
            self.rest_mj,
            sum(one.busy_ns for one in ended),
            sum(one.held_ns for one in ended),
            sum(one.energy_mj for one in ended),
            self.unknown_ns,
            _id("account", self.device.uuid, self.now.wall_ns),
        )


def _within(moment_ns: int, spans: Iterable[tuple[int, int]]) -> bool:
    return any(start_ns <= moment_ns < end_ns for start_ns, end_ns in spans)


def _names(subject: PartialRef) -> tuple[str, ...]:
    return subject.namespace, subject.pod, subject.container, subject.uid


def _id(*parts: object) -> str:
    return blake2b("\0".join(map(str, parts)).encode(), digest_size=8).hexdigest()
