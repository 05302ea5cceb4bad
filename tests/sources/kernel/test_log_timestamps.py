"""Conversion of kernel log timestamps to podgpu's clock, which may drift against the kernel's."""

from hypothesis import given
from hypothesis import strategies as st

from pipeline.model import NS, Instant
from sources.kernel.log_follower import LogClock

WALL = 1_700_000_000


def at(seconds: float) -> Instant:
    return Instant(round(seconds * NS), round((WALL + seconds) * NS))


def us(seconds: float) -> int:
    return round(seconds * 1_000_000)


def test_the_first_record_gets_the_time_of_reading() -> None:
    clock = LogClock(at(100))
    assert clock.time_of(us(3), at(160)) == at(160)


def test_a_record_that_is_read_late_gets_the_time_of_writing() -> None:
    clock = LogClock(at(100))
    clock.time_of(us(3), at(160))
    clock.mark_read(at(160))
    assert clock.time_of(us(10), at(175)).mono_ns // 10_000_000 == at(167).mono_ns // 10_000_000


def test_the_wall_time_follows_the_current_wall_clock() -> None:
    """The wall clock was set forward by an hour in the meantime."""
    clock = LogClock(at(100))
    clock.time_of(us(3), at(160))
    clock.mark_read(at(160))
    now = Instant(at(175).mono_ns, at(175 + 3600).wall_ns)
    found = clock.time_of(us(18), now)
    assert now.wall_ns - found.wall_ns == now.mono_ns - found.mono_ns


def test_a_drifting_clock_is_followed_over_months() -> None:
    """Each record is read a millisecond after writing. The kernel's clock is off by 100 ppm."""
    for rate in (0.9999, 1.0001):
        clock = LogClock(at(0))
        for hour in range(24 * 90):
            written = hour * 3600.0 + 1
            found = clock.time_of(us(written * rate), at(written + 0.001))
            clock.mark_read(at(written + 0.002))
            assert abs(found.mono_ns - at(written).mono_ns) < 50_000_000


def test_a_time_is_between_the_last_read_and_now_after_a_suspend() -> None:
    for jump in (-7200, 7200):
        clock = LogClock(at(0))
        clock.time_of(us(8000), at(1))
        clock.mark_read(at(2))
        found = clock.time_of(us(8000 + jump + 2), at(3))
        assert at(2).mono_ns <= found.mono_ns <= at(3).mono_ns


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**12), st.booleans()), max_size=30)
)
def test_a_time_is_always_between_the_last_read_and_now(steps: list[tuple[int, int, bool]]) -> None:
    now_ns = quiet_ns = 0
    clock = LogClock(Instant(0, 0))
    for passed, stamp_us, quiet in steps:
        now_ns += passed
        found = clock.time_of(stamp_us, Instant(now_ns, now_ns))
        assert quiet_ns <= found.mono_ns <= now_ns
        if quiet:
            clock.mark_read(Instant(now_ns, now_ns))
            quiet_ns = now_ns
