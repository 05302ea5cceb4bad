"""Input of a status document: the state of the daemon."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from pipeline.base.telemetry import FamilyPoints, Troubles
from pipeline.model import NS, Instant, Snapshot, SourceState
from pipeline.status_page.last_day_usage import LastDayUsage
from pipeline.status_page.recent_past import Past

_MAX_SECONDS: Final = 253_402_300_799
"""The end of the year 9999, in seconds of Unix time."""


@dataclass(frozen=True, slots=True)
class StatusInput:
    """The state of the daemon at one time.

    node: name of the node.
    version: podgpu's version.
    now: the time of this state.
    ready: whether podgpu is ready, and one line of text about it.
    snapshot: the newest snapshot; None before the first.
    sources: current state of the sources by name, in the order of the configuration.
    holders_known: whether a source reports holders.
    sinks: kinds of the sinks by name, in the order of the configuration.
    telemetry: current values of podgpu's own metrics.
    troubles: the last error or warning of each component that had one.
    last_day: usage of the last 24 hours from a ledger; None without a ledger.
    past: what the status page remembers of earlier snapshots.
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
    past: Past = field(default_factory=Past)

    @property
    def started(self) -> float | None:
        """Start time of podgpu in Unix time, in seconds; None if unknown."""
        name = "process_start_time_seconds"
        found = (points[0].value for family, points in self.telemetry if family.name == name)
        return next(found, None)

    def age(self, then: Instant | None) -> float | None:
        """Return the seconds from a time until `now`, rounded to milliseconds; None for None."""
        return None if then is None else round(max(then.seconds_until(self.now), 0.0), 3)


def date(wall_ns: int) -> datetime:
    """Convert nanoseconds of Unix time to a date in whole seconds, from 1970 to 9999."""
    return datetime.fromtimestamp(min(max(wall_ns // NS, 0), _MAX_SECONDS), UTC)
