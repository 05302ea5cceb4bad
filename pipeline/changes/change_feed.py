"""What has happened since a sink looked last."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pipeline.changes.descriptions import error_id
from pipeline.model import Holding, Snapshot, XidError

_STATE_KEY: Final = "news"


class XidChange(NamedTuple):
    """An XID error to be told of.

    Attributes:
        error: it.
        is_update: it was told of before, and something was added to it since.
        id: what names it, the same each time, though what it is made of may be known better later.
    """

    error: XidError
    is_update: bool
    id: str


@dataclass(frozen=True, slots=True)
class Changes:
    """What nobody was told of so far.

    Attributes:
        holdings: that have ended, by serial.
        errors: by serial.
        missed_holdings: how many came and went between two looks.
        missed_errors: likewise.
    """

    holdings: tuple[Holding, ...] = ()
    errors: tuple[XidChange, ...] = ()
    missed_holdings: int = 0
    missed_errors: int = 0


NOTHING: Final = Changes()


@dataclass(slots=True)
class _TrackerState:
    """What was told of: it outlives a reload of the sink.

    Attributes:
        holding: serial of the last one; None where nobody knows which was the last.
        error: likewise.
        errors: revision and id of those that were told of and may still be added to, by serial.
    """

    holding: int | None
    error: int | None
    errors: dict[int, tuple[int, str]] = field(default_factory=dict)


class ChangeTracker:
    """Finds what is new in each snapshot.

    A sink that is there when podgpu starts is told of all that happens from then on, one that comes
    later of what happens after that, and one that was reloaded goes on where it was.

    Args:
        restart_state: what the sink leaves here is there again after a reload (`ctx.kept`).
        latest: the newest snapshot when the sink was made; None where there was none so far.
    """

    def __init__(self, restart_state: dict[str, object], latest: Snapshot | None) -> None:
        told = restart_state.get(_STATE_KEY)
        if not isinstance(told, _TrackerState):
            told = restart_state[_STATE_KEY] = _initial_state(latest)
        self._told = told
        self._usage: object = None
        self._xids: object = None

    def update(self, snapshot: Snapshot) -> Changes:
        """Return what has happened since the snapshot before, each thing once."""
        if snapshot.usage is self._usage and snapshot.xids is self._xids:
            return NOTHING
        self._usage, self._xids = snapshot.usage, snapshot.xids
        holdings, missed = self._holdings(snapshot)
        before = self._told.error
        errors = tuple(self._errors(snapshot.xids))
        new = [one.error.serial for one in errors if not one.is_update]
        lost = new[-1] - before - len(new) if new and before is not None else 0
        return Changes(holdings, errors, missed, lost)

    def _holdings(self, snapshot: Snapshot) -> tuple[tuple[Holding, ...], int]:
        told, usage = self._told, snapshot.usage
        found = usage.ended_after(told.holding or 0) if usage is not None else ()
        if not found:
            return (), 0
        before, told.holding = told.holding, found[-1].serial
        return found, 0 if before is None else told.holding - before - len(found)

    def _errors(self, xids: tuple[XidError, ...]) -> Iterator[XidChange]:
        told = self._told
        former, told.errors = told.errors, {}
        last = told.error
        for error in xids:
            revision, name = former.get(error.serial, (error.revision, ""))
            if last is None or error.serial > last:
                told.error, name = error.serial, error_id(error)
                yield XidChange(error, is_update=False, id=name)
            elif not name:  # from before the sink was there
                continue
            elif error.revision > revision:
                yield XidChange(error, is_update=True, id=name)
            told.errors[error.serial] = error.revision, name


def _initial_state(latest: Snapshot | None) -> _TrackerState:
    """Begin behind what has happened so far."""
    if latest is None:
        return _TrackerState(0, 0)
    ended = latest.usage.ended if latest.usage is not None else ()
    return _TrackerState(
        ended[-1].serial if ended else None,
        latest.xids[-1].serial if latest.xids else None,
    )
