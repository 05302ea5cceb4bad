"""Recorded splits of a shared GPU as usage samples: what the driver says, and what was done."""

import random
from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.gpu.split_error import STEP_MS, Recording

BLOCK_MS: Final = 10_000
"""Composed recordings consist of blocks of this length."""


class Interval(NamedTuple):
    """The time between two usage samples.

    Attributes:
        busy: milliseconds of busy time by the driver's windows, of each process.
        work: milliseconds of work done, of each process.
        begin_ms: where it begins in the recording.
    """

    busy: tuple[float, ...]
    work: tuple[float, ...]
    begin_ms: float


def intervals(recording: Recording, length_ms: int) -> list[Interval]:
    """Return a recording as usage samples of a length, from when all processes work."""
    begin = max(points[0][0] for points in recording.work) + STEP_MS
    last = min(points[-1][0] for points in recording.work)
    places, found = range(len(recording.loads)), list[Interval]()
    while begin + length_ms <= last:
        end = begin + length_ms
        found.append(
            Interval(
                tuple([recording.by_driver(one, begin, end) for one in places]),
                tuple([recording.done(one, end) - recording.done(one, begin) for one in places]),
                begin,
            )
        )
        begin = end
    return found


def composed(recorded: Sequence[Interval], length_ms: int, whole_ms: int) -> list[Interval]:
    """Return a longer recording, composed of blocks of a recorded one in random order."""
    size = BLOCK_MS // length_ms
    blocks = [recorded[i : i + size] for i in range(0, len(recorded) - size + 1, size)]
    draws = random.Random(1)  # the same composition in each run
    return [one for _ in range(whole_ms // BLOCK_MS) for one in draws.choice(blocks)]
