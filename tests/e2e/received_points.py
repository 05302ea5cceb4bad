"""Compare the points that a Collector received with the points that were sent."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.points import Point, Request
from tests.e2e.queue_content import QueueContent


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A point that was received twice.

    Attributes:
        first, then: numbers of the requests that contained it.
    """

    point: Point
    first: int
    then: int


@dataclass(slots=True)
class ReceivedPoints:
    """Each point once, in the order of arrival, and the duplicates."""

    points: dict[tuple[object, ...], Point] = field(default_factory=dict)
    """By identity."""
    duplicates: list[Duplicate] = field(default_factory=list)
    requests: int = 0

    @property
    def resent(self) -> set[int]:
        """Numbers of the first requests of points that were received again."""
        return {again.first for again in self.duplicates}

    def series(self) -> dict[tuple[object, ...], list[Point]]:
        """Return points by series, in the order of arrival."""
        found: dict[tuple[object, ...], list[Point]] = {}
        for point in self.points.values():
            found.setdefault(point.series, []).append(point)
        return found

    def check_order(self) -> None:
        """Assert that the points of each series arrived in the order of time."""
        for series, points in self.series().items():
            times = [point.time_ns for point in points]
            assert times == sorted(times), series


def arrived(requests: Sequence[Request]) -> ReceivedPoints:
    """Separate duplicates from new points, and assert that duplicates are identical."""
    found = ReceivedPoints(requests=len(requests))
    first: dict[tuple[object, ...], int] = {}
    for number, request in enumerate(requests):
        for point in request.points:
            known = found.points.get(point.identity)
            if known is None:
                found.points[point.identity] = point
                first[point.identity] = number
                continue
            assert point.content == known.content, (known, point)
            assert number != first[point.identity], f"twice in one request: {point}"
            found.duplicates.append(Duplicate(point, first[point.identity], number))
    return found


def powers(points: Iterable[Point]) -> dict[str, list[float]]:
    """Return all readings of power by GPU, in the order of arrival."""
    found: dict[str, list[float]] = {}
    for point in points:
        if point.name == "hw.power" and point.value is not None:
            found.setdefault(point.attributes["hw.id"], []).append(float(point.value))
    return found


def written(lines: Path) -> dict[str, list[float]]:
    """Return the power readings by GPU that the sink `jsonl` wrote."""
    found: dict[str, list[float]] = {}
    for line in lines.read_text().splitlines():
        record = json.loads(line)
        if record["record"] == "device" and "power_watts" in record["readings"]:
            powers = found.setdefault(record["device"]["uuid"], [])
            powers.append(record["readings"]["power_watts"])
    return found


def check_nothing_lost(
    found: ReceivedPoints, queue: QueueContent, lines: dict[str, list[float]]
) -> None:
    """Assert that no point was lost, according to the queue's totals and the JSON lines.

    Args:
        found: the received points.
        queue: the content of the queue after the stop.
        lines: the result of `written`.
    """
    totals = queue.totals
    assert (totals.rejected, totals.dropped, queue.points) == ({}, {}, 0)
    assert totals.appended == totals.acked == len(found.points)
    assert powers(found.points.values()) == lines
    found.check_order()


def thinned(there: list[float], whole: list[float]) -> bool:
    """Return whether `there` is a proper subsequence of `whole`."""
    rest = iter(whole)
    return len(there) < len(whole) and all(value in rest for value in there)
