"""The figures of docs/usage.md about the bound of a split: its example, and splits on an H100."""

from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest

from pipeline.model import NS, split_error_ns
from pipeline.usage.contest import contests
from tests.gpu.split_bound import SAMPLE_MS, accounted
from tests.gpu.split_error import recordings
from tests.gpu.split_intervals import intervals


class Split(NamedTuple):
    """A shared GPU for some seconds.

    Attributes:
        loads: its processes.
        seconds: how long it was measured.
        true: the work of each process, in percent of the GPU's time.
        reported: the same by the driver.
    """

    loads: str
    seconds: int
    true: tuple[float, ...]
    reported: tuple[float, ...]

    def bounds(self) -> list[float]:
        """Return the bound of each process, in percent of the GPU's time."""
        busy = {
            one: round(part * self.seconds * NS / 100) for one, part in enumerate(self.reported)
        }
        found = contests(busy, 0, (), self.seconds * NS)
        return [
            100 * (split_error_ns(*found[one]) or 0) / (self.seconds * NS) for one in sorted(found)
        ]

    def uncovered(self) -> list[bool]:
        """Return for each process whether its error is above its bound."""
        return [
            abs(true - reported) > bound
            for true, reported, bound in zip(self.true, self.reported, self.bounds(), strict=True)
        ]


IN_STEP = "0.3 and 0.6, both with a period of exactly 200 ms"
FIVE = "four of 0.05 and one of 0.4"
SPLITS = (
    Split("0.3 and 0.6", 40, (16.8, 38.8), (16.4, 38.2)),
    Split("0.3 and 0.6, another time", 40, (20.0, 48.5), (22.4, 47.9)),
    Split("0.1 and 0.8", 40, (6.2, 73.8), (8.3, 71.1)),
    Split("0.1 and 0.8, another time", 40, (6.5, 73.6), (10.8, 69.4)),
    Split("three of 0.2", 40, (16.2, 16.3, 16.4), (13.6, 16.4, 19.8)),
    Split("three of 0.2 and one of 0.1", 40, (14.8, 14.9, 14.9, 7.4), (14.1, 15.8, 13.7, 10.9)),
    Split(FIVE, 40, (4.3, 4.3, 4.2, 4.4, 33.6), (6.6, 8.2, 6.5, 7.5, 23.8)),
    Split("two that saturate it", 30, (44.8, 44.8), (51.6, 48.3)),
    Split("two that saturate it, one with tiny kernels", 30, (57.2, 50.5), (56.0, 43.9)),
    Split(IN_STEP, 30, (14.2, 44.3), (6.1, 54.7)),
)


def table() -> list[str]:
    """Return the lines of the table of docs/usage.md."""
    lines = [
        "| Part of the time that the pods work | Seconds | True work, % | Reported, % | Bound, % |",
        "|---|---|---|---|---|",
    ]
    for one in SPLITS:
        values = (one.true, one.reported, one.bounds())
        cells = [", ".join(f"{value:.1f}" for value in row) for row in values]
        lines.append(f"| {one.loads} | {one.seconds} | {' | '.join(cells)} |")
    return lines


def test_the_page_has_these_splits() -> None:
    assert "\n".join(table()) in Path("docs/usage.md").read_text(encoding="utf-8"), table()


@pytest.mark.parametrize("one", SPLITS, ids=lambda one: one.loads)
def test_the_bound_covers_all_but_the_ones_that_the_page_names(one: Split) -> None:
    expected = {IN_STEP: [True, True], FIVE: [False, False, False, False, True]}
    assert one.uncovered() == expected.get(one.loads, [False] * len(one.true))


def test_the_example_of_the_page() -> None:
    page = Path("docs/usage.md").read_text(encoding="utf-8")
    quarter = contests({"a": NS // 4, "b": NS // 4}, 0, (), NS)["a"]
    for seconds, text in ((60, "15 ± 2.9 s of busy time in a minute"), (3600, "900 ± 44 s")):
        bound = split_error_ns(*(seconds * amount for amount in quarter))
        assert bound is not None
        assert text.startswith(f"{seconds / 4:g} ± {float(f'{bound / NS:.2g}'):g} s")
        assert text in page.replace("\n", " ")


def test_the_load_that_needs_a_bound_above_six_points() -> None:
    """Two of four processes saturate the GPU: their busy time includes the time for switching."""
    totals = accounted(intervals(recordings()[-1], SAMPLE_MS), SAMPLE_MS)
    minutes = list(zip(totals, totals[60_000 // SAMPLE_MS :], strict=False))
    point_ns = 60 * NS / 100
    errors, bounds = list[list[float]](), list[float]()
    for place in range(4):
        errors.append([])
        limits = list[float]()
        for begin, end in minutes:
            one, later = begin[place], end[place]
            error_ns = (later.busy_ns - one.busy_ns) - (later.work_ns - one.work_ns)
            errors[-1].append(error_ns / point_ns)
            limit_ns = split_error_ns(
                later.contested_ns - one.contested_ns, later.switching_ns - one.switching_ns
            )
            limits.append((limit_ns or 0) / point_ns)
        bounds.append(median(limits))
    for large in errors[:2]:
        assert 2 <= median(large) <= 3
    assert max(map(max, errors)) == pytest.approx(6, abs=0.5)
    assert bounds == [pytest.approx(points, abs=0.5) for points in (11, 11, 4, 2)]
