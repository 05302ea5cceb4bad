"""What a document is made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from pipeline.base.telemetry import FamilyPoints, Troubles
from pipeline.model import NS, Instant, Snapshot, SourceState
from pipeline.status_page.last_day_usage import LastDayUsage

_LAST: Final = 253_402_300_799
"""The end of the year 9999."""


@dataclass(frozen=True, slots=True)
class StatusInput:
    """What the daemon knows at one moment.

    Attributes:
        node: the node's name.
        version: podgpu's.
        now: the moment.
        ready: whether podgpu is, and a line for people.
        snapshot: the newest; None before the first.
        sources: as they are now, in the order of the configuration.
        holders_known: whether some source tells who holds what.
        sinks: kinds by name, in the order of the configuration.
        telemetry: podgpu's own metrics as they are now.
        troubles: the last trouble of each component that had any.
        last_day: what a ledger told of the last 24 hours; None where none runs.
    """

    node: str
    version: str
    now: Instant
    ready: tuple[bool, str]
    snapshot: Snapshot | None
    sources: Mapping[str, SourceState]
    holders_known: bool
    sinks: Mapping[str, str]
    telemetry: Sequence[FamilyPoints]
    troubles: Troubles = field(default_factory=dict)
    last_day: LastDayUsage | None = None

    @property
    def started(self) -> float | None:
        """When podgpu started, in Unix time."""
        for family, points in self.telemetry:
            if family.name == "process_start_time_seconds":
                return points[0].value
        return None

    def age(self, then: Instant | None) -> float | None:
        """Return the seconds since a moment, to the millisecond."""
        return None if then is None else round(max(then.seconds_until(self.now), 0.0), 3)


def date(wall_ns: int) -> datetime:
    """Return a wall time, to the second; one that no calendar has as the nearest."""
    return datetime.fromtimestamp(min(max(wall_ns // NS, 0), _LAST), UTC)
