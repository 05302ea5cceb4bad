"""How busy each container kept its devices during the last minute, and how wrong this may be.

The driver reports one process on a device for each 200 ms, so the part of a second that each
container had is mostly chance. Over a minute it is not, and the error has a bound.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from pipeline.model import (
    NS,
    ContainerUsage,
    DeviceUsage,
    PartialRef,
    Snapshot,
    split_error_ns,
)

STEP_NS: Final = 10 * NS
"""Time between two points."""

POINTS: Final = 7
"""Number of points of a container: the oldest is about a minute old."""

MOST_CONTAINERS: Final = 4096
"""Maximum number of containers on devices with points."""

LEAST_NS: Final = 5 * NS
"""Length of the time from which on a mean over it is calculated."""

Key: TypeAlias = tuple[str, PartialRef]
"""UUID of the device, and the container."""


class BusyPoint(NamedTuple):
    """Totals of the usage accounts at one time.

    Attributes:
        elapsed_ns: time for which the device has usage samples.
        busy_ns: busy time of the container on it.
        contested_ns: its contested busy time; None if unknown.
        switching_ns: its busy time for switching; None if unknown.
    """

    elapsed_ns: int
    busy_ns: int
    contested_ns: int | None
    switching_ns: int | None


class BusyPart(NamedTuple):
    """The part of a time for which a container kept a device busy.

    Attributes:
        percent: percentage of the time.
        error_percent: by how many percentage points this may be wrong, because the device is
            shared; 0 for a sole user, None if unknown.
    """

    percent: float
    error_percent: float | None


class LastMinute:
    """Collects points of each container from snapshots, in bounded memory."""

    def __init__(self) -> None:
        self._step = -1
        self._points: dict[Key, deque[BusyPoint]] = {}

    def add(self, snapshot: Snapshot) -> None:
        """Add a snapshot. Only the first one of each step is used."""
        step = snapshot.at.mono_ns // STEP_NS
        if step == self._step:
            return
        self._step = step
        found: dict[Key, deque[BusyPoint]] = {}
        for uuid, device in {} if snapshot.usage is None else snapshot.usage.devices.items():
            for one in device.containers:
                if one.ended is None and one.busy_ns is not None and len(found) < MOST_CONTAINERS:
                    point = BusyPoint(
                        device.elapsed_ns, one.busy_ns, one.contested_ns, one.switching_ns
                    )
                    found[uuid, one.subject] = self._with(point, (uuid, one.subject))
        self._points = found

    def oldest(self) -> Mapping[Key, BusyPoint]:
        """Return a copy of the oldest point of each container."""
        return {key: points[0] for key, points in self._points.items()}

    def _with(self, point: BusyPoint, key: Key) -> deque[BusyPoint]:
        points = self._points.get(key)
        last = points[-1] if points else point
        if points is None or point.elapsed_ns < last.elapsed_ns or point.busy_ns < last.busy_ns:
            # A new account, as after a restart of a recording.
            points = deque(maxlen=POINTS)
        points.append(point)
        return points


def busy_part(
    device: DeviceUsage, one: ContainerUsage, oldest: Mapping[Key, BusyPoint]
) -> BusyPart | None:
    """Return the part of the last minute for which a container kept a device busy.

    It is that of the last second or more if the container has been known for less than
    `LEAST_NS`, with an unknown error if the container has not been the only user. It is None if it
    is unknown now.
    """
    if one.recent_busy_ppm is None:
        return None
    since = oldest.get((device.device, one.subject))
    if since is not None and one.busy_ns is not None:
        elapsed, busy = device.elapsed_ns - since.elapsed_ns, one.busy_ns - since.busy_ns
        if elapsed >= LEAST_NS and busy >= 0:
            error = split_error_ns(
                _growth(since.contested_ns, one.contested_ns),
                _growth(since.switching_ns, one.switching_ns),
            )
            return BusyPart(
                round(min(busy / elapsed, 1.0) * 100, 1),
                None if error is None else round(min(error / elapsed, 1.0) * 100, 1),
            )
    alone = one.contested_ns == 0 and one.switching_ns == 0
    return BusyPart(round(one.recent_busy_ppm / 1e4, 1), 0 if alone else None)


def _growth(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None else max(now - before, 0)
