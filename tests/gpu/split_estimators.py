"""Other ways to split a shared GPU's busy time by what NVML reports, compared on the recordings.

Each way was tried on the first four recordings, and on scenes composed of them in which the load
changes. The best of them was then judged on the other recordings. The command
`python -m tests.gpu.split_estimators` prints the tables of docs/usage.md.
"""

import json
import lzma
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import isnan
from statistics import mean, median
from typing import Final, NamedTuple, TypeAlias

from tests.gpu.split_error import FOLDER, WINDOW_MS, Recording, recordings

INTERVAL_MS: Final = 5_000
"""The busy time of an interval is scaled as a whole where a way uses profiling fields."""

MINUTE_MS: Final = 60_000
_HALF_MS: Final = 110_000
_TURN_MS: Final = 30_000


class Window(NamedTuple):
    """A window of the driver.

    Attributes:
        end_ms: its end.
        process: the process that the driver names.
        busy_ms: how long the GPU was busy in it.
        graphics_ms: the same by the profiling field "graphics engine active".
        sm_ms: the same by the profiling field "SM active".
    """

    end_ms: float
    process: int
    busy_ms: float
    graphics_ms: float
    sm_ms: float


@dataclass(frozen=True, slots=True)
class Scene:
    """A recording, or parts of recordings one after the other.

    Attributes:
        title: how the table names it.
        work: its work by time, without windows.
        windows: by time.
        listed: (end in milliseconds, processes that NVML lists until then).
    """

    title: str
    work: Recording
    windows: tuple[Window, ...]
    listed: tuple[tuple[float, frozenset[int]], ...]

    def listed_at(self, at_ms: float) -> frozenset[int]:
        """Return the processes that NVML lists at a time."""
        return next(found for end, found in self.listed if at_ms <= end)


Parts: TypeAlias = list[list[float]]
"""For each window the milliseconds of each process."""

Way: TypeAlias = Callable[[Scene], Parts]


class Part(NamedTuple):
    """A part of a recording in a composed scene.

    Attributes:
        name: first letter of the recording.
        begin_ms: where it begins, after the beginning of the recording.
        length_ms: its length.
        places: the process of the scene for each process of the recording that is used.
        listed: the processes of the scene that NVML lists.
    """

    name: str
    begin_ms: float
    length_ms: float
    places: Mapping[int, int]
    listed: frozenset[int]


def by_name() -> dict[str, Scene]:
    """Return the recordings by the first letter of their names."""
    found: dict[str, Scene] = {}
    for one in recordings():
        processes = frozenset(range(len(one.loads)))
        loads = ", ".join(f"{duty:g}" for duty, _ in one.loads)
        path = FOLDER / f"{one.scene}.json.xz"
        fields = json.loads(lzma.decompress(path.read_bytes()))["graphics_active"]
        windows = tuple(_windows(one, fields))
        found[one.scene[0]] = Scene(loads, one, windows, ((float("inf"), processes),))
    return found


def _windows(
    recording: Recording, fields: Sequence[tuple[float, float, float]]
) -> Iterator[Window]:
    graphics, sm = (_until([(row[0], row[column]) for row in fields]) for column in (1, 2))
    for end, process, percent in sorted(recording.windows):
        begin = end - WINDOW_MS
        yield Window(
            end,
            process,
            percent * WINDOW_MS / 100,
            graphics(end) - graphics(begin),
            sm(end) - sm(begin),
        )


def _until(rows: Sequence[tuple[float, float]]) -> Callable[[float], float]:
    """Return the busy milliseconds until a time, by means in per cent since the row before."""
    known = [row for row in rows if not isnan(row[1])]
    times = [at for at, _ in known]
    steps = [(at - before) * percent / 100 for (before, _), (at, percent) in pairwise(known)]
    sums = list(accumulate(steps, initial=0.0))

    def until(at_ms: float) -> float:
        place = bisect_right(times, at_ms)
        if place in (0, len(times)):
            return sums[min(place, len(times) - 1)]
        begin, end = times[place - 1], times[place]
        return sums[place - 1] + (sums[place] - sums[place - 1]) * (at_ms - begin) / (end - begin)

    return until


def composed(title: str, parts: Sequence[Part], recorded: Mapping[str, Scene]) -> Scene:
    """Return parts of recordings as one scene, without time between them."""
    count = 1 + max(place for part in parts for place in part.places.values())
    windows: list[Window] = []
    work: list[list[tuple[int, float]]] = [[(0, 0.0)] for _ in range(count)]
    listed: list[tuple[float, frozenset[int]]] = []
    at = 0.0
    for part in parts:
        source = recorded[part.name]
        begin = next(source.work.spans(INTERVAL_MS))[0] + part.begin_ms
        end, moved = begin + part.length_ms, at - begin
        for own, place in part.places.items():
            before = work[place][-1][1] - source.work.done(own, begin)
            times = [t for t, _ in source.work.work[own] if begin < t < end]
            work[place] += [
                (round(t + moved), source.work.done(own, t) + before) for t in (begin, *times, end)
            ]
        windows += [
            one._replace(end_ms=one.end_ms + moved, process=part.places[one.process])
            for one in source.windows
            if begin < one.end_ms <= end and one.process in part.places
        ]
        at += part.length_ms
        listed.append((at, part.listed))
    for points in work:
        points.append((round(at), points[-1][1]))
    done = Recording(title, (), (), tuple([tuple(points) for points in work]))
    return Scene(title, done, tuple(windows), tuple(listed))


def _half(name: str, places: Sequence[int], listed: int | None = None) -> Part:
    """Return 110 s of a recording; `listed` is the number of processes if some of them pause."""
    present = frozenset(places if listed is None else range(listed))
    return Part(name, 0, _HALF_MS, dict(enumerate(places)), present)


def chosen_on(recorded: Mapping[str, Scene]) -> list[Scene]:
    """Return the scenes on which a way is chosen."""
    both = frozenset({0, 1})
    turns = [
        Part(name, place * _TURN_MS, _TURN_MS, places, both)
        for place in range(3)
        for name, places in (("c", {0: 0, 1: 1}), ("b", {0: 1, 1: 0}))
    ]
    return [
        *(recorded[name] for name in "abcd"),
        composed("two of four pause", (_half("a", range(4)), _half("b", range(2), 4)), recorded),
        composed("three of five end", (_half("d", range(5)), _half("b", (0, 4))), recorded),
        composed("two take turns, each 30 s", turns, recorded),
    ]


def judged_on(recorded: Mapping[str, Scene]) -> list[Scene]:
    """Return the scenes on which the chosen way is judged."""
    return [
        *(recorded[name] for name in "efgh"),
        composed("four of six end", (_half("f", range(6)), _half("e", range(2))), recorded),
        composed("one of three pauses", (_half("g", range(3)), _half("e", range(2), 3)), recorded),
    ]


def driver(scene: Scene) -> Parts:
    """Each window belongs to the process that the driver names, as podgpu counts."""
    return [_parts(scene, one, {one.process: 1.0}) for one in scene.windows]


def neighbours(reach: int) -> Way:
    """Each window is split among the processes of the windows around it.

    Args:
        reach: how many windows before, and how many after it.
    """

    def split(scene: Scene) -> Parts:
        found: Parts = []
        for place, one in enumerate(scene.windows):
            around = scene.windows[max(place - reach, 0) : place + reach + 1]
            shares: dict[int, float] = {}
            for each in around:
                shares[each.process] = shares.get(each.process, 0) + 1
            found.append(_parts(scene, one, shares))
        return found

    return split


def last_minute(own: float) -> Way:
    """A part of each window belongs to its process, the rest is split as the last minute was.

    Args:
        own: the part that belongs to the process that the driver names.
    """

    def split(scene: Scene) -> Parts:
        found: Parts = []
        recent: deque[Window] = deque()
        sums: dict[int, float] = {}
        for one in scene.windows:
            recent.append(one)
            sums[one.process] = sums.get(one.process, 0) + one.busy_ms
            while recent[0].end_ms <= one.end_ms - MINUTE_MS:
                old = recent.popleft()
                sums[old.process] -= old.busy_ms
            longer = _parts(scene, one, sums)
            found.append([(1 - own) * part for part in longer])
            found[-1][one.process] += own * one.busy_ms
        return found

    return split


def scaled(way: Way, busy_ms: Callable[[Window], float]) -> Way:
    """All parts of an interval are scaled to its busy time by a profiling field."""

    def split(scene: Scene) -> Parts:
        parts = way(scene)
        by_field: dict[int, float] = {}
        by_driver: dict[int, float] = {}
        intervals = [int(one.end_ms // INTERVAL_MS) for one in scene.windows]
        for interval, one in zip(intervals, scene.windows, strict=True):
            by_field[interval] = by_field.get(interval, 0) + busy_ms(one)
            by_driver[interval] = by_driver.get(interval, 0) + one.busy_ms
        return [
            [part * by_field[interval] / (by_driver[interval] or 1) for part in window]
            for interval, window in zip(intervals, parts, strict=True)
        ]

    return split


def _parts(scene: Scene, window: Window, shares: Mapping[int, float]) -> list[float]:
    """Split a window's busy time by shares; a process that is not listed has none."""
    listed = scene.listed_at(window.end_ms)
    shares = {one: share for one, share in shares.items() if one in listed and share > 0}
    if not shares:
        shares = {window.process: 1.0}
    whole = sum(shares.values())
    return [window.busy_ms * shares.get(one, 0) / whole for one in range(len(scene.work.work))]


DRIVER: Final = "the driver's process"

WAYS: Final[Mapping[str, Way]] = {
    DRIVER: driver,
    "3 windows": neighbours(1),
    "25 windows (5 s)": neighbours(12),
    "last minute": last_minute(0),
    "half last minute": last_minute(0.5),
    "graphics active": scaled(driver, lambda one: one.graphics_ms),
    "SM active": scaled(driver, lambda one: one.sm_ms),
    "3 windows, SM active": scaled(neighbours(1), lambda one: one.sm_ms),
}


def errors(scene: Scene, way: Way) -> tuple[float, float]:
    """Return median and 95th percentile of a process' error in a minute, in percent of the GPU."""
    ends = [one.end_ms for one in scene.windows]
    sums = [list(accumulate(parts, initial=0.0)) for parts in zip(*way(scene), strict=True)]
    found: list[float] = []
    for begin, end in scene.work.spans(MINUTE_MS):
        first, beyond = bisect_right(ends, begin), bisect_right(ends, end)
        for process, totals in enumerate(sums):
            true = scene.work.done(process, end) - scene.work.done(process, begin)
            found.append(100 * abs(true - (totals[beyond] - totals[first])) / MINUTE_MS)
    found.sort()
    return median(found), found[len(found) * 95 // 100]


def choice(recorded: Mapping[str, Scene]) -> str:
    """Return the way with the smallest mean of the 95th percentiles where a way is chosen."""
    scenes = chosen_on(recorded)
    return min(WAYS, key=lambda name: means(scenes, WAYS[name])[1])


def means(scenes: Sequence[Scene], way: Way) -> tuple[float, float]:
    """Return the means over scenes of the median and the 95th percentile of the error."""
    found = [errors(scene, way) for scene in scenes]
    return mean(one for one, _ in found), mean(one for _, one in found)


def tables(recorded: Mapping[str, Scene]) -> tuple[list[str], list[str]]:
    """Return the lines of the table of all ways, and of the one that judges the chosen way."""
    judged = {name: WAYS[name] for name in (DRIVER, choice(recorded))}
    return _table(chosen_on(recorded), WAYS), _table(judged_on(recorded), judged)


def _table(scenes: Sequence[Scene], ways: Mapping[str, Way]) -> list[str]:
    lines = [f"| Processes | {' | '.join(ways)} |", "|---" * (len(ways) + 1) + "|"]
    rows = {one.title: [errors(one, way) for way in ways.values()] for one in scenes}
    rows["mean"] = [means(scenes, way) for way in ways.values()]
    for title, cells in rows.items():
        lines.append(f"| {title} | {' | '.join(f'{one:.1f}, {two:.1f}' for one, two in cells)} |")
    return lines


if __name__ == "__main__":
    for lines in tables(by_name()):
        print("\n".join(lines), end="\n\n")
