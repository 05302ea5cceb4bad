"""Whether the true work lies within the bound of a split, in recordings of known work.

The usage accounts get the driver's windows as the nvml source delivers them. The command
`python -m tests.gpu.split_bound` prints the table of docs/usage.md.
"""

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Final, NamedTuple

from pipeline.model import NS, split_error_ns
from tests.gpu.split_error import Recording, recordings
from tests.gpu.split_intervals import Interval, composed, intervals
from tests.pipeline.usage.samples import Book, by_pod, holder, process

SAMPLE_MS: Final = 5_000
COMPOSED_MS: Final = 600_000

_MS: Final = NS // 1000
_HEADINGS: Final = (
    "Processes",
    "10 s: within the bound",
    "median error, bound",
    "60 s: within the bound",
    "median error, bound",
    "60 s of ten composed minutes",
)


class Totals(NamedTuple):
    """The totals of a process at a usage sample, in nanoseconds."""

    busy_ns: int
    contested_ns: int
    switching_ns: int
    work_ns: float


class Coverage(NamedTuple):
    """How the errors in windows of one length compare with their bounds.

    Attributes:
        windows: number of windows, of all processes together.
        within: percent of the windows in which the error is at most the bound.
        error: median error, in percent of the GPU's time.
        bound: median bound, in percent of the GPU's time.
    """

    windows: int
    within: float
    error: float
    bound: float


def accounted(recorded: Sequence[Interval], length_ms: int) -> list[list[Totals]]:
    """Return the totals of each process after each usage sample, by podgpu's accounts.

    Args:
        recorded: the time between the samples.
        length_ms: the length of each.
    """
    pods = [f"p{place}" for place in range(len(recorded[0].busy))]
    book = Book()
    book.hold(0, *(holder(pod, 1 / len(pods)) for pod in pods))
    book.sample(0, None, *(process(pod, busy=None) for pod in pods))
    done = [0.0] * len(pods)
    found = [[Totals(0, 0, 0, 0.0) for _ in pods]]
    for number, one in enumerate(recorded):
        begin, end = (at * length_ms / 1000 for at in (number, number + 1))
        busy = [round(part * _MS) for part in one.busy]
        account = book.sample(
            end,
            begin,
            *(process(pod, busy=part) for pod, part in zip(pods, busy, strict=True)),
            busy=sum(busy),
        )
        done = [before + work * _MS for before, work in zip(done, one.work, strict=True)]
        busy_of, contested, switching = (
            by_pod(account.containers, name) for name in ("busy_ns", "contested_ns", "switching_ns")
        )
        found.append(
            [
                Totals(busy_of[pod] or 0, contested[pod] or 0, switching[pod] or 0, work)
                for pod, work in zip(pods, done, strict=True)
            ]
        )
    return found


def coverage(totals: Sequence[Sequence[Totals]], length_ms: int, window_ms: int) -> Coverage:
    """Return how errors and bounds compare in all windows of a length.

    Args:
        totals: see `accounted`.
        length_ms: the time between two samples.
        window_ms: the length of the windows, which begin at each sample.
    """
    steps = window_ms // length_ms
    errors, bounds = list[float](), list[float]()
    for before, after in zip(totals, totals[steps:], strict=False):
        for one, later in zip(before, after, strict=True):
            busy, contested, switching, work = (b - a for a, b in zip(one, later, strict=True))
            bound = split_error_ns(round(contested), round(switching))
            assert bound is not None
            errors.append(abs(busy - work) / window_ms / _MS * 100)
            bounds.append(bound / window_ms / _MS * 100)
    hits = sum(error <= bound for error, bound in zip(errors, bounds, strict=True))
    return Coverage(len(errors), 100 * hits / len(errors), median(errors), median(bounds))


def coverages(recording: Recording, length_ms: int = SAMPLE_MS) -> tuple[Coverage, ...]:
    """Return the coverage in 10 s and 60 s, and in 60 s of a composed recording of 600 s."""
    recorded = intervals(recording, length_ms)
    totals = accounted(recorded, length_ms)
    longer = accounted(composed(recorded, length_ms, COMPOSED_MS), length_ms)
    return (
        coverage(totals, length_ms, 10_000),
        coverage(totals, length_ms, 60_000),
        coverage(longer, length_ms, 60_000),
    )


def table() -> list[str]:
    """Return the lines of the table."""
    lines = [f"| {' | '.join(_HEADINGS)} |", "|---|---|---|---|---|---|"]
    for one in recordings():
        in_10, in_60, longer = coverages(one)
        loads = ", ".join(f"{duty:g} ({length:g} ms)" for duty, length in one.loads)
        cells = [
            loads,
            f"{in_10.within:.1f} %",
            f"{in_10.error:.1f}, {in_10.bound:.1f}",
            f"{in_60.within:.1f} %",
            f"{in_60.error:.1f}, {in_60.bound:.1f}",
            f"{longer.within:.1f} %",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def grows(totals: Sequence[Sequence[Totals]]) -> bool:
    """Whether no total of any process decreases."""
    return all(
        a <= b
        for before, after in pairwise(totals)
        for one, later in zip(before, after, strict=True)
        for a, b in zip(one, later, strict=True)
    )


if __name__ == "__main__":
    print("\n".join(table()))
