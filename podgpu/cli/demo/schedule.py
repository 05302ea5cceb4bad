"""Turn the table of workloads into stays: a container's time on one device."""

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import cos, pi
from typing import Final
from uuid import UUID

from pipeline.model import NS, Device, PartialRef, PodInfo
from pipeline.usage.contest import UNCONTESTED, Contest
from podgpu.cli.demo.recorded_node import RecordedNode
from podgpu.cli.demo.workloads import DAYS, WORKLOADS, Present, Runs, Span, Workload

HOUR_NS: Final = 3600 * NS
DAY_NS: Final = 24 * HOUR_NS

_WEEKEND: Final = 0.35
"""Factor of the load of a weekend."""

_BETWEEN_NS: Final = 20 * NS
"""Time between the end of a pod and the start of the one that replaces it."""

_BUSIEST_HOUR: Final = 14
_JITTER_HOURS: Final = 0.4


@dataclass(slots=True, eq=False)
class Stay:
    """A container's time on one device, and what it used.

    Attributes:
        workload: the workload of the container.
        device: uuid of the device.
        subject: the container.
        pod: its pod.
        start_ns: when it began, in nanoseconds of Unix time.
        end_ns: when it ended, in nanoseconds of Unix time; None while it continues.
        xids: (code, count) of XID errors.
        counted_ns: length of the counted time.
        gap_ns: length of the time without usage samples.
        held_ns: held time.
        busy_ns: busy time.
        contest: how uncertain the busy time is.
        energy_mj: energy in millijoules.
        peak: the largest busy part of an interval.
    """

    workload: Workload
    device: str
    subject: PartialRef
    pod: PodInfo
    start_ns: int
    end_ns: int | None
    xids: tuple[tuple[int, int], ...]
    counted_ns: int = 0
    gap_ns: int = 0
    held_ns: int = 0
    busy_ns: int = 0
    contest: Contest = UNCONTESTED
    energy_mj: int = 0
    peak: float = field(default=0)

    def load(self, moment_ns: int) -> float:
        """Return the part of the time for which it keeps the device busy, at a moment."""
        night, day = self.workload.busy
        mean = night + (day - night) * _activity(moment_ns) if day > night else night
        hour = moment_ns // HOUR_NS
        deviation = 0.94 + 0.12 * noise(f"{self.subject.pod} {self.device} {hour}")
        return min(mean * deviation, 0.99)


def noise(text: str) -> float:
    """Return a number from 0 to 1 that depends only on the text."""
    return zlib.crc32(text.encode()) / 0xFFFFFFFF


def stays(node: RecordedNode, now_ns: int) -> list[Stay]:
    """Return the stays of all workloads on the devices that the node has, by device and start.

    Args:
        node: the node of the recording.
        now_ns: the end of the sample data, in nanoseconds of Unix time.
    """
    found = [stay for workload in WORKLOADS for stay in _of(workload, node, now_ns)]
    found.sort(key=lambda one: (one.device, one.start_ns, one.subject))
    return found


def _of(workload: Workload, node: RecordedNode, now_ns: int) -> Iterator[Stay]:
    for number, (start_ns, end_ns) in enumerate(
        times(workload.runs, workload.name, node, now_ns), 1
    ):
        namespace, name, container = workload.name.format(n=number).split("/")
        pod = node.pods.get((namespace, name)) or _made_up(workload, namespace, name)
        subject = PartialRef(namespace, name, container, pod.uid)
        xids = tuple([(code, count) for run, code, count in workload.xids if run == number])
        for device in _devices(workload.places, node):
            yield Stay(workload, device.uuid, subject, pod, start_ns, end_ns, xids)


def _devices(places: Iterable[int | tuple[int, int]], node: RecordedNode) -> Iterator[Device]:
    for place in places:
        device = node.device(place)
        if device is not None:
            yield device


def _made_up(workload: Workload, namespace: str, name: str) -> PodInfo:
    digits = [zlib.crc32(f"{part} {namespace}/{name}".encode()) for part in range(4)]
    uid = UUID(int=sum(each << (32 * at) for at, each in enumerate(digits)), version=4)
    kind, _, owner = workload.owner.partition("/")
    labels = (("team", namespace),)
    return PodInfo(str(uid), namespace, name, owner_kind=kind, owner_name=owner, labels=labels)


def times(
    runs: Runs, name: str, node: RecordedNode, now_ns: int
) -> Iterator[tuple[int, int | None]]:
    """Yield start and end of each run, in nanoseconds of Unix time; None for one that continues.

    Args:
        runs: when there are runs.
        name: name of the workload. The deviations from the hour depend on it.
        node: the node of the recording.
        now_ns: now, in nanoseconds of Unix time.
    """
    if isinstance(runs, Present):
        yield now_ns - _age(name, node, runs.since), None
        return
    last_ns = now_ns
    if runs.before:
        present = next(one for one in WORKLOADS if one.name.startswith(f"{runs.before}/"))
        since = present.runs.since if isinstance(present.runs, Present) else 0
        last_ns -= _age(present.name, node, since) + _BETWEEN_NS
    if isinstance(runs, Span):
        start = now_ns - round(runs.since * DAY_NS)
        end = min(now_ns - round(runs.until * DAY_NS), last_ns)
        if start < end:
            yield start, end
        return
    today = now_ns // DAY_NS
    for day in range(today - DAYS, today + 1):
        start = day * DAY_NS + round((runs.hour + _deviation(f"{name} {day}")) * HOUR_NS)
        length = runs.hours * (1 + _deviation(f"length {name} {day}") / 4)
        end = start + max(round(length * HOUR_NS), 1)
        if _weekday(start) in runs.days and start > now_ns - DAYS * DAY_NS and end <= last_ns:
            yield start, end


def _age(name: str, node: RecordedNode, days: float) -> int:
    """Return how long a pod of the recording has run, in nanoseconds, at most all of the time.

    Args:
        name: namespace, pod and container.
        node: the node of the recording.
        days: its age in days, if the recording does not contain it.
    """
    namespace, pod, _ = name.split("/")
    age = node.ages.get((namespace, pod), round(days * DAY_NS))
    return min(age, DAYS * DAY_NS)


def _deviation(text: str) -> float:
    return _JITTER_HOURS * (2 * noise(text) - 1)


def _weekday(moment_ns: int) -> int:
    return datetime.fromtimestamp(moment_ns // NS, UTC).weekday()


def _activity(moment_ns: int) -> float:
    """Return how much people use services at a moment, from 0 to 1."""
    hour = moment_ns % DAY_NS / HOUR_NS
    wave = (1 + cos((hour - _BUSIEST_HOUR) * pi / 12)) / 2
    return wave * (1 if _weekday(moment_ns) < 5 else _WEEKEND)
