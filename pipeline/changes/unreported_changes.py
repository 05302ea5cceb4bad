"""The ended holdings and XID errors that are new to a sink."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pipeline.changes.descriptions import error_id
from pipeline.model import Holding, Snapshot, XidError

_STATE_KEY: Final = "news"


class XidChange(NamedTuple):
    """An XID error to be reported.

    Attributes:
        error: the error.
        is_update: whether it was reported before and has new details since.
        id: identifies the error; the same in all reports, even if details become known later.
    """

    error: XidError
    is_update: bool
    id: str


@dataclass(frozen=True, slots=True)
class UnreportedChanges:
    """Ended holdings and XID errors that have not been reported yet.

    Attributes:
        holdings: holdings that have ended, by serial.
        errors: XID errors, by serial.
        missed_holdings: number of holdings that appeared and expired between two snapshots.
        missed_errors: number of XID errors that appeared and expired between two snapshots.
    """

    holdings: tuple[Holding, ...] = ()
    errors: tuple[XidChange, ...] = ()
    missed_holdings: int = 0
    missed_errors: int = 0


@dataclass(slots=True)
class _TrackerState:
    """What was reported; it is kept when the sink is reloaded.

    Attributes:
        holding: serial of the last reported holding; None if unknown.
        error: serial of the last reported error; None if unknown.
        errors: revision and id of reported errors that may still get details, by serial.
    """

    holding: int | None
    error: int | None
    errors: dict[int, tuple[int, str]] = field(default_factory=dict)


class ChangeTracker:
    """Finds what is new in each snapshot.

    A sink that exists when podgpu starts gets all changes since the start. A sink that is added
    later gets the changes after its creation. A sink that is reloaded continues where it was.

    Args:
        restart_state: the sink's state that is kept over a reload (`ctx.restart_state`).
        latest: the newest snapshot when the sink was created; None if there was none.
    """

    def __init__(self, restart_state: dict[str, object], latest: Snapshot | None) -> None:
        state = restart_state.get(_STATE_KEY)
        if not isinstance(state, _TrackerState):
            state = restart_state[_STATE_KEY] = _initial_state(latest)
        self._state = state

    def update(self, snapshot: Snapshot) -> UnreportedChanges:
        """Return the changes since the previous snapshot, each one once; count those missed."""
        holdings, missed = self._holdings(snapshot)
        before = self._state.error
        errors = tuple(self._errors(snapshot.xids))
        new = [one.error.serial for one in errors if not one.is_update]
        missed_errors = new[-1] - before - len(new) if new and before is not None else 0
        return UnreportedChanges(holdings, errors, missed, missed_errors)

    def _holdings(self, snapshot: Snapshot) -> tuple[tuple[Holding, ...], int]:
        state, usage = self._state, snapshot.usage
        found = usage.ended_after(state.holding or 0) if usage is not None else ()
        if not found:
            return (), 0
        before, state.holding = state.holding, found[-1].serial
        return found, 0 if before is None else state.holding - before - len(found)

    def _errors(self, xids: tuple[XidError, ...]) -> Iterator[XidChange]:
        state = self._state
        reported, state.errors = state.errors, {}
        last = state.error
        for error in xids:
            revision, name = reported.get(error.serial, (error.revision, ""))
            if last is None or error.serial > last:
                state.error, name = error.serial, error_id(error)
                yield XidChange(error, is_update=False, id=name)
            elif not name:  # it occurred before the sink was created
                continue
            elif error.revision > revision:
                yield XidChange(error, is_update=True, id=name)
            state.errors[error.serial] = error.revision, name


def _initial_state(latest: Snapshot | None) -> _TrackerState:
    """Return a state that skips everything in the latest snapshot."""
    if latest is None:
        return _TrackerState(0, 0)
    ended = latest.usage.ended if latest.usage is not None else ()
    return _TrackerState(
        ended[-1].serial if ended else None,
        latest.xids[-1].serial if latest.xids else None,
    )
