"""Statistics of the driver's own samples over a sliding window."""

from hypothesis import given
from hypothesis import strategies as st

from sources.nvml.sample_series import Buckets, Series
from tests.fakes.nvml import ALL_ONES_32

SECOND = 1_000_000
STEP = 20_000
"""Microseconds between two samples: the interval of an H100's power samples."""

Samples = list[tuple[int, int | float]]


def ring(first: int, count: int, value: int = 100) -> Samples:
    """Return consecutive samples, starting with sample number `first`."""
    return [(SECOND + number * STEP, value) for number in range(first, first + count)]


samples = st.lists(
    st.tuples(st.integers(1, 3 * STEP), st.integers(0, 1000)), min_size=1, max_size=300
)


@given(samples, st.integers(1, 40 * STEP), st.integers(0, 30 * STEP))
def test_a_summary_covers_all_samples_of_the_window(
    steps: list[tuple[int, int]], length: int, silence: int
) -> None:
    buckets = Buckets(length)
    taken: list[tuple[int, int, int]] = []
    end = SECOND
    for span, value in steps:
        end += span
        buckets.add(end, span, value)
        taken.append((end - span, end, value))
        assert len(buckets) <= 32
    now = end + silence
    summary = buckets.over(now)
    within = [sample for sample in taken if sample[1] > now - length]
    if summary is None:
        assert not within
        return
    summed = [sample for sample in taken if sample[0] >= summary.start]
    assert set(within) <= set(summed), "no sample of the window is missed"
    longest = max(end - start for start, end, _ in taken)
    assert summary.start >= now - length - max(length // 30, 1) - 2 * longest
    values = [value for _, _, value in summed]
    covered = sum(end - start for start, end, _ in summed)
    assert summary.minimum == min(values)
    assert summary.maximum == max(values)
    mean = sum((end - start) * value for start, end, value in summed) / covered
    assert abs(summary.mean - mean) < 1e-6


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60), st.integers(41, 200))
def test_the_summary_does_not_depend_on_how_often_the_ring_is_read(
    reads: list[int], holds: int
) -> None:
    reads = [reads[0] + 1, *reads[1:]]  # one sample is not enough to know the spacing
    values = [number * 7919 % 1000 for number in range(sum(reads))]
    everything: Samples = [(SECOND + n * STEP, value) for n, value in enumerate(values)]
    incremental, single = Series(SECOND, 1000), Series(SECOND, 1000)
    seen = 0
    for count in reads:
        seen += count
        incremental.add_ring(everything[max(0, seen - holds) : seen])
    single.add_ring(everything)
    assert incremental.summary(0) == single.summary(0)


def test_a_short_peak_is_the_maximum_for_the_whole_window() -> None:
    series = Series(SECOND, 1000)
    series.add_ring([*ring(0, 10), *ring(10, 3, 700), *ring(13, 5)])
    for number in range(18, 62):
        series.add_ring(ring(18, number - 17))
        found = series.summary(0)
        assert found is not None
        assert (found[0].minimum, found[0].maximum) == (100, 700)
    series.add_ring(ring(18, 50))
    found = series.summary(0)
    assert found is not None
    assert found[0].maximum == 100


def test_a_sample_is_weighted_by_the_time_since_the_one_before() -> None:
    series = Series(10 * SECOND, 1000)
    series.add_ring([(SECOND, 0), (SECOND + 10, 0), (SECOND + 20, 0), (SECOND + 50, 600)])
    found = series.summary(0)
    assert found is not None
    # The first sample has the usual step of 10, and the last one 30 of the 60 microseconds.
    assert found[0].mean == 300
    assert found[0].start == SECOND - 10


def test_a_pause_of_the_driver_has_the_weight_of_few_samples() -> None:
    series = Series(10 * SECOND, 1000)
    series.add_ring([*ring(0, 4, 0), *ring(150, 1, 1000), *ring(151, 3, 0)])
    found = series.summary(0)
    assert found is not None
    assert found[0].mean == 1000 * 4 / (4 + 4 + 3), "four usual steps, not 147"


def test_the_window_starts_after_samples_that_were_lost() -> None:
    series = Series(100 * SECOND, 1000)
    series.capacity = 20
    series.add_ring(ring(0, 10, 900))
    assert series.capacity == 20
    series.add_ring(ring(50, 10, 300))
    assert series.capacity == 10
    found = series.summary(0)
    assert found is not None
    summary, reach = found
    assert (summary.minimum, summary.maximum) == (300, 300)
    assert reach == 10 * STEP, "from the time of the sample before the first known one"


def test_a_ring_that_is_read_just_in_time_has_no_gap() -> None:
    series = Series(100 * SECOND, 1000)
    series.capacity = 20
    series.add_ring(ring(0, 10, 900))
    series.add_ring(ring(10, 10, 300))
    found = series.summary(0)
    assert found is not None
    assert (found[0].minimum, found[0].maximum) == (300, 900)
    assert series.capacity == 20


def test_a_series_restarts_when_the_clock_is_set_back() -> None:
    series = Series(SECOND, 1000)
    series.add_ring(ring(1000, 10, 900))
    assert not series.add_ring(ring(1000, 10, 900))
    assert series.add_ring(ring(0, 10, 300))
    assert series.add_ring(ring(0, 12, 300))
    found = series.summary(0)
    assert found is not None
    assert (found[0].minimum, found[0].maximum) == (300, 300)


def test_a_clock_that_is_set_forward_drops_earlier_samples() -> None:
    series = Series(SECOND, 1000)
    series.add_ring(ring(0, 10, 900))
    series.add_ring([*ring(2, 8, 900), *ring(10_000_000, 2, 300)])
    found = series.summary(0)
    assert found is not None
    assert found[0].maximum == 300
    assert series.spacing == STEP


def test_a_window_without_samples_has_no_summary() -> None:
    series = Series(SECOND, 1000)
    assert series.summary(0) is None
    series.add_ring(ring(0, 10))
    assert series.summary(SECOND // 2) is not None
    assert series.summary(2 * SECOND) is None


def test_impossible_values_are_left_out_and_flagged() -> None:
    series = Series(SECOND, 1000)
    series.add_ring([*ring(0, 2), *ring(2, 1, ALL_ONES_32), *ring(3, 1)])
    assert not series.has_implausible, "all ones means that there is no value"
    for number, value in enumerate((1001, -1, float("nan"), float("inf"))):
        series.add_ring([(SECOND + (4 + number) * STEP, value)])
        assert series.has_implausible
        series.wrong = False
    found = series.summary(0)
    assert found is not None
    assert (found[0].minimum, found[0].mean, found[0].maximum) == (100, 100, 100)
