"""When a record was written, by a clock that the kernel's only resembles."""

from hypothesis import given
from hypothesis import strategies as st

from pipeline.model import NS, Instant
from sources.kernel.log_timestamps import LogClock

WALL = 1_700_000_000


def at(seconds: float) -> Instant:
    return Instant(round(seconds * NS), round((WALL + seconds) * NS))


def us(seconds: float) -> int:
    return round(seconds * 1_000_000)


def test_what_is_read_first_was_written_just_now() -> None:
    moments = LogClock(at(100))
    assert moments.time_of(us(3), at(160)) == at(160)


def test_what_is_read_late_was_written_when_it_was() -> None:
    moments = LogClock(at(100))
    moments.time_of(us(3), at(160))
    moments.mark_read(at(160))
    assert moments.time_of(us(10), at(175)).mono_ns // 10_000_000 == at(167).mono_ns // 10_000_000


def test_the_wall_clock_s_part_is_by_the_wall_clock_of_now() -> None:
    """It was set forward by an hour since."""
    moments = LogClock(at(100))
    moments.time_of(us(3), at(160))
    moments.mark_read(at(160))
    now = Instant(at(175).mono_ns, at(175 + 3600).wall_ns)
    found = moments.time_of(us(18), now)
    assert now.wall_ns - found.wall_ns == now.mono_ns - found.mono_ns


def test_a_clock_that_drifts_is_followed_over_months() -> None:
    """Each record is read a millisecond after it was written; the kernel's clock is 100 ppm off."""
    for rate in (0.9999, 1.0001):
        moments = LogClock(at(0))
        for hour in range(24 * 90):
            written = hour * 3600.0 + 1
            found = moments.time_of(us(written * rate), at(written + 0.001))
            moments.mark_read(at(written + 0.002))
            assert abs(found.mono_ns - at(written).mono_ns) < 50_000_000


def test_a_machine_that_has_slept_leaves_nothing_in_the_future_or_before_the_last_look() -> None:
    for jump in (-7200, 7200):
        moments = LogClock(at(0))
        moments.time_of(us(8000), at(1))
        moments.mark_read(at(2))
        found = moments.time_of(us(8000 + jump + 2), at(3))
        assert at(2).mono_ns <= found.mono_ns <= at(3).mono_ns


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**12), st.booleans()), max_size=30)
)
def test_a_moment_lies_between_the_last_look_and_now(steps: list[tuple[int, int, bool]]) -> None:
    now_ns = quiet_ns = 0
    moments = LogClock(Instant(0, 0))
    for passed, stamp_us, quiet in steps:
        now_ns += passed
        found = moments.time_of(stamp_us, Instant(now_ns, now_ns))
        assert quiet_ns <= found.mono_ns <= now_ns
        if quiet:
            moments.mark_read(Instant(now_ns, now_ns))
            quiet_ns = now_ns
