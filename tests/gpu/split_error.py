"""How far the driver's split of a shared GPU is from the work done, in recordings of known work.

`tests/gpu/split_recorder.py` made the recordings on an H200. The command
`python -m tests.gpu.split_error` prints the table of docs/usage.md.
"""

import json
import lzma
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final

FOLDER: Final = Path(__file__).with_name("recorded_splits")
STEP_MS: Final = 2_000
WINDOW_MS: Final = 200
"""The driver attributes each window of this length to one process."""

_HEADINGS: Final = (
    "Processes: part of the time they work (length of a kernel)",
    "True work, %",
    "By the driver, %",
    "Error in 10 s: median, 95 %, largest",
    "Error in 60 s",
)

PAUSE_MS: Final = 60
"""A process reports its work at least this often while it works."""


@dataclass(frozen=True, slots=True)
class Recording:
    """Some processes that share one GPU for four minutes.

    Attributes:
        scene: name of the recording.
        loads: (duty, milliseconds of a kernel) of each process.
        windows: (end in milliseconds, place of the process in `loads`, percent) of the driver's
            windows.
        work: for each process (milliseconds, milliseconds of work done so far): kernels done,
            multiplied by the time of one kernel without other load.
    """

    scene: str
    loads: tuple[tuple[float, float], ...]
    windows: tuple[tuple[int, int, int], ...]
    work: tuple[tuple[tuple[int, float], ...], ...]

    def done(self, process: int, at_ms: float) -> float:
        """Return the milliseconds of work that a process had done at a time."""
        points = self.work[process]
        place = bisect_right(points, at_ms, key=lambda point: point[0])
        if place == 0 or place == len(points):
            return points[min(place, len(points) - 1)][1]
        (begin, before), (end, after) = points[place - 1 : place + 1]
        if end - begin > PAUSE_MS * 2:
            # It paused after `begin`, and worked for a part of the time before `end`.
            worked_from = max(end - (after - before), begin)
            return before + max(at_ms - worked_from, 0) * (after - before) / max(
                end - worked_from, 1
            )
        return before + (after - before) * (at_ms - begin) / (end - begin)

    def by_driver(self, process: int, begin_ms: float, end_ms: float) -> float:
        """Return the busy time of a process in a time, in milliseconds, by the driver's windows."""
        first = bisect_right(self.windows, begin_ms, key=lambda window: window[0])
        beyond = bisect_right(self.windows, end_ms, key=lambda window: window[0])
        own = [percent for _, label, percent in self.windows[first:beyond] if label == process]
        return sum(own) * WINDOW_MS / 100

    def spans(self, length_ms: int) -> Iterator[tuple[float, float]]:
        """Yield all spans of a length in which all processes work, each two seconds later."""
        begin = max(points[0][0] for points in self.work) + STEP_MS
        last = min(points[-1][0] for points in self.work) - length_ms
        while begin <= last:
            yield begin, begin + length_ms
            begin += STEP_MS


@dataclass(frozen=True, slots=True)
class Row:
    """The errors of a recording, in percent of the GPU's time.

    Attributes:
        recording: the recording.
        true: the true share of each process over the whole recording.
        reported: the driver's share of each process.
        errors_10: the median, the 95th percentile and the largest error of a process in ten
            seconds.
        errors_60: the same in a minute.
    """

    recording: Recording
    true: tuple[float, ...]
    reported: tuple[float, ...]
    errors_10: tuple[float, float, float]
    errors_60: tuple[float, float, float]


def recordings() -> list[Recording]:
    """Return all recordings, sorted by name."""
    return [_read(path) for path in sorted(FOLDER.glob("*.json.xz"))]


def _read(path: Path) -> Recording:
    found: dict[str, Any] = json.loads(lzma.decompress(path.read_bytes()))
    return Recording(
        found["scene"],
        tuple([(load["duty"], load["kernel_ms"]) for load in found["loads"]]),
        tuple([(at, place, percent) for at, place, percent in found["windows"]]),
        tuple(
            [
                tuple([(at, kernels * solo * 1000) for at, kernels in points])
                for points, solo in zip(found["work"], found["solo_seconds"], strict=True)
            ]
        ),
    )


def row(recording: Recording) -> Row:
    """Return the errors of a recording."""
    begin = next(recording.spans(10_000))[0]
    end = [*recording.spans(10_000)][-1][1]
    places = range(len(recording.loads))
    return Row(
        recording,
        tuple([_true(recording, one, begin, end) for one in places]),
        tuple([_reported(recording, one, begin, end) for one in places]),
        errors(recording, 10_000),
        errors(recording, 60_000),
    )


def errors(recording: Recording, length_ms: int) -> tuple[float, float, float]:
    """Return median, 95th percentile and largest error of a process in spans of a length."""
    found = sorted(
        abs(_true(recording, one, begin, end) - _reported(recording, one, begin, end))
        for begin, end in recording.spans(length_ms)
        for one in range(len(recording.loads))
    )
    return median(found), found[len(found) * 95 // 100], found[-1]


def _true(recording: Recording, one: int, begin: float, end: float) -> float:
    return 100 * (recording.done(one, end) - recording.done(one, begin)) / (end - begin)


def _reported(recording: Recording, one: int, begin: float, end: float) -> float:
    return 100 * recording.by_driver(one, begin, end) / (end - begin)


def table() -> list[str]:
    """Return the lines of the table."""
    lines = [
        f"| {' | '.join(_HEADINGS)} |",
        "|---|---|---|---|---|",
    ]
    for one in map(row, recordings()):
        loads = ", ".join(f"{duty:g} ({length:g} ms)" for duty, length in one.recording.loads)
        cells = [loads, *map(_listed, (one.true, one.reported, one.errors_10, one.errors_60))]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in values)


def window_lengths(recording: Recording) -> list[int]:
    """Return the milliseconds between the ends of each two windows."""
    return [later[0] - earlier[0] for earlier, later in pairwise(recording.windows)]


if __name__ == "__main__":
    print("\n".join(table()))
