"""The true work lies within the bound of a split, in eight recordings of known work on an H200."""

from pathlib import Path

import pytest

from pipeline.model import split_error_ns
from tests.gpu import split_bound
from tests.gpu.split_bound import SAMPLE_MS, accounted, coverage, coverages, grows
from tests.gpu.split_error import Recording, recordings
from tests.gpu.split_intervals import composed, intervals

RECORDINGS = recordings()
IDS = [one.scene for one in RECORDINGS]

WIDER = {"h-saturated-with-small"}
"""Two of its four processes saturate the GPU and lose 2 and 3 points of work to switching in every
window. NVML does not report this time."""

recorded_scene = pytest.mark.parametrize("recording", RECORDINGS, ids=IDS)


@recorded_scene
@pytest.mark.parametrize("sample_ms", [5_000, 1_000])
def test_the_true_work_is_within_the_bound_in_95_percent_of_the_windows(
    recording: Recording, sample_ms: int
) -> None:
    for found in coverages(recording, sample_ms):
        assert found.windows >= 60
        assert found.within >= 95, found


@recorded_scene
def test_the_bound_of_a_minute_is_narrow(recording: Recording) -> None:
    for found in coverages(recording)[1:]:
        narrow = found.error < 3 and recording.scene not in WIDER
        assert found.bound <= (6 if narrow else 12), found


def test_no_constant_is_as_narrow_and_as_often_right() -> None:
    """The narrowest constant that is right in 95 % of each scene is too wide for most scenes."""
    constant, limits = 0.0, list[float]()
    for one in RECORDINGS:
        totals = accounted(intervals(one, SAMPLE_MS), SAMPLE_MS)
        errors = sorted(
            abs((b.busy_ns - a.busy_ns) - (b.work_ns - a.work_ns)) / 600_000_000
            for before, after in zip(totals, totals[12:], strict=False)
            for a, b in zip(before, after, strict=True)
        )
        constant = max(constant, errors[len(errors) * 95 // 100])
        limits.append(coverage(totals, SAMPLE_MS, 60_000).bound)
    assert sum(limit < constant for limit in limits) >= 5


@pytest.mark.parametrize(
    ("without", "scene"),
    [("contested", "b-two"), ("switching", "e-two-saturated")],
)
def test_each_term_of_the_bound_is_needed(without: str, scene: str) -> None:
    [recording] = [one for one in RECORDINGS if one.scene == scene]
    totals = [
        [one._replace(**{f"{without}_ns": 0}) for one in each]
        for each in accounted(intervals(recording, SAMPLE_MS), SAMPLE_MS)
    ]
    assert coverage(totals, SAMPLE_MS, 60_000).within < 95


@recorded_scene
def test_totals_never_decrease(recording: Recording) -> None:
    assert grows(accounted(intervals(recording, SAMPLE_MS), SAMPLE_MS))


def test_a_composed_recording_has_the_blocks_of_the_recorded_one() -> None:
    recorded = intervals(RECORDINGS[0], SAMPLE_MS)
    longer = composed(recorded, SAMPLE_MS, 600_000)
    assert len(longer) == 120
    assert set(longer) <= set(recorded)
    assert all(
        b.begin_ms - a.begin_ms == SAMPLE_MS for a, b in zip(longer[::2], longer[1::2], strict=True)
    )


def test_the_bound_of_a_sum_grows_more_slowly_than_the_sum() -> None:
    hour = split_error_ns(900 * 10**9, 0)
    day = split_error_ns(24 * 900 * 10**9, 0)
    assert hour is not None
    assert day is not None
    assert hour * 4 < day < hour * 5


def test_the_page_has_the_figures() -> None:
    page = Path("docs/usage.md").read_text(encoding="utf-8")
    assert "\n".join(split_bound.table()) in page, "run python -m tests.gpu.split_bound"
