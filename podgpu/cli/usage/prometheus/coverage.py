"""What a server has recorded of each hour of a span, and how the span is divided into queries.

Pure. A span is read from the coarsest records that are complete: sums of days, sums of hours, or
records of five minutes. Hours without complete records are counted from podgpu's counters.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from podgpu.cli.usage.prometheus.recorded_series import DAY_STEPS, HOUR_STEPS, STEP_SECONDS

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
_STEP_MS: Final = STEP_SECONDS * 1000


class Level(Enum):
    """What the usage of a time is read from; the value is its name in messages."""

    DAYS = "sums of days"
    HOURS = "sums of hours"
    STEPS = "records of five minutes"
    COUNTERS = "podgpu's counters"
    NOTHING = "nothing"


LONGEST: Final[Mapping[Level, int]] = {
    Level.DAYS: 31 * DAY_MS,
    Level.HOURS: 3 * DAY_MS,
    Level.STEPS: DAY_MS,
    Level.COUNTERS: 6 * HOUR_MS,
    Level.NOTHING: 1 << 60,
}
"""The longest time of one query, in milliseconds."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A time that one query reads.

    Attributes:
        start_ms: start, a full hour, in milliseconds of Unix time.
        end_ms: end, a full hour.
        level: what is read.
    """

    start_ms: int
    end_ms: int
    level: Level

    @property
    def length_ms(self) -> int:
        """Length in milliseconds."""
        return self.end_ms - self.start_ms

    def halves(self) -> "tuple[Chunk, Chunk] | None":
        """Return two halves of whole hours, or of whole days; None if it cannot be divided."""
        unit = DAY_MS if self.level is Level.DAYS else HOUR_MS
        count = self.length_ms // unit
        if count < 2:
            return None
        middle = self.start_ms + count // 2 * unit
        return (
            Chunk(self.start_ms, middle, self.level),
            Chunk(middle, self.end_ms, self.level),
        )


@dataclass(frozen=True, slots=True)
class Coverage:
    """How often the rules were evaluated, by the start of the day or hour.

    Attributes:
        days: evaluations in each UTC day, from the sums of days.
        hours: evaluations in each hour, from the sums of hours.
        steps: evaluations in each hour, from the records of five minutes.
        counted: the hours in which the server has samples of podgpu's counters.
    """

    days: Mapping[int, float]
    hours: Mapping[int, float]
    steps: Mapping[int, float]
    counted: Collection[int]

    def level(self, hour_ms: int, now_ms: int, *, of_containers: bool) -> Level:
        """Return what an hour is read from, without the sums of days."""
        if now_ms <= hour_ms + _STEP_MS:
            return Level.NOTHING  # the first evaluation of the hour is still to come
        if not of_containers and self.hours.get(hour_ms, 0) >= HOUR_STEPS:
            return Level.HOURS
        steps = self.steps.get(hour_ms, 0)
        if steps and steps >= _expected(hour_ms, now_ms):
            return Level.STEPS
        if hour_ms in self.counted:
            return Level.COUNTERS
        return Level.STEPS if steps else Level.NOTHING

    def missed(self, chunks: Collection[Chunk], now_ms: int) -> int:
        """Return the number of evaluations that are missing in what is read from records."""
        return sum(
            max(_expected(hour, now_ms) - round(self.steps.get(hour, 0)), 0)
            for chunk in chunks
            if chunk.level is Level.STEPS
            for hour in range(chunk.start_ms, chunk.end_ms, HOUR_MS)
            if hour in self.steps
        )


def _expected(hour_ms: int, now_ms: int) -> int:
    """Return how many evaluations an hour has at least, if none is missed.

    Those of an hour are at most five minutes after the time that they record.
    """
    passed = (now_ms - hour_ms - 2 * _STEP_MS) // _STEP_MS
    return min(max(passed, 1), HOUR_STEPS)


def divided(
    start_ms: int, end_ms: int, now_ms: int, coverage: Coverage, *, of_containers: bool
) -> list[Chunk]:
    """Return the queries of a span, the earliest first. They do not overlap.

    Args:
        start_ms: start of the span, a full hour.
        end_ms: end of the span, a full hour.
        now_ms: the present time.
        coverage: what the server has.
        of_containers: whether containers are needed, which sums of hours and days do not have.
    """
    found: list[Chunk] = []
    for piece in _pieces(start_ms, end_ms, now_ms, coverage, of_containers=of_containers):
        last = found[-1] if found else None
        if (
            last is not None
            and last.level is piece.level
            and piece.end_ms - last.start_ms <= LONGEST[piece.level]
        ):
            found[-1] = Chunk(last.start_ms, piece.end_ms, piece.level)
        else:
            found.append(piece)
    return found


def _pieces(
    start_ms: int, end_ms: int, now_ms: int, coverage: Coverage, *, of_containers: bool
) -> Iterator[Chunk]:
    at = start_ms
    while at < end_ms:
        is_day = not (of_containers or at % DAY_MS) and at + DAY_MS <= end_ms
        if is_day and coverage.days.get(at, 0) >= DAY_STEPS:
            yield Chunk(at, at + DAY_MS, Level.DAYS)
            at += DAY_MS
            continue
        level = coverage.level(at, now_ms, of_containers=of_containers)
        yield Chunk(at, at + HOUR_MS, level)
        at += HOUR_MS
