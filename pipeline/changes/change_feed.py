"""What has happened since a sink looked last."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pipeline.changes.descriptions import error_id
from pipeline.model import Holding, Snapshot, XidError

_KEPT: Final = "news"


class Error(NamedTuple):
    """An XID error to be told of.

    Attributes:
        error: it.
        again: it was told of before, and something was added to it since.
        id: what names it, the same each time, though what it is made of may be known better later.
    """

    error: XidError
    again: bool
    id: str


@dataclass(frozen=True, slots=True)
class News:
    """What nobody was told of so far.

    Attributes:
        holdings: that have ended, by serial.
        errors: by serial.
        missed_holdings: how many came and went between two looks.
        missed_errors: likewise.
    """

    holdings: tuple[Holding, ...] = ()
    errors: tuple[Error, ...] = ()
    missed_holdings: int = 0
    missed_errors: int = 0


NOTHING: Final = News()


@dataclass(slots=True)
class _Told:
    """What was told of: it outlives a reload of the sink.

    Attributes:
        holding: serial of the last one; None where nobody knows which was the last.
        error: likewise.
        errors: revision and id of those that were told of and may still be added to, by serial.
    """

    holding: int | None
    error: int | None
    errors: dict[int, tuple[int, str]] = field(default_factory=dict)


class Following:
    """Finds what is new in each snapshot.

    A sink that is there when podgpu starts is told of all that happens from then on, one that comes
    later of what happens after that, and one that was reloaded goes on where it was.

    Args:
        kept: what the sink leaves here is there again after a reload (`ctx.kept`).
        latest: the newest snapshot when the sink was made; None where there was none so far.
    """

    def __init__(self, kept: dict[str, object], latest: Snapshot | None) -> None:
        told = kept.get(_KEPT)
        if not isinstance(told, _Told):
            told = kept[_KEPT] = _begun(latest)
        self._told = told
        self._usage: object = None
        self._xids: object = None

    def look(self, snapshot: Snapshot) -> News:
        """Return what has happened since the snapshot before, each thing once."""
        if snapshot.usage is self._usage and snapshot.xids is self._xids:
            return NOTHING
        self._usage, self._xids = snapshot.usage, snapshot.xids
        holdings, missed = self._holdings(snapshot)
        before = self._told.error
        errors = tuple(self._errors(snapshot.xids))
        new = [one.error.serial for one in errors if not one.again]
        lost = new[-1] - before - len(new) if new and before is not None else 0
        return News(holdings, errors, missed, lost)

    def _holdings(self, snapshot: Snapshot) -> tuple[tuple[Holding, ...], int]:
        told, usage = self._told, snapshot.usage
        found = usage.ended_after(told.holding or 0) if usage is not None else ()
        if not found:
            return (), 0
        before, told.holding = told.holding, found[-1].serial
        return found, 0 if before is None else told.holding - before - len(found)

    def _errors(self, xids: tuple[XidError, ...]) -> Iterator[Error]:
        told = self._told
        former, told.errors = told.errors, {}
        last = told.error
        for error in xids:
            revision, name = former.get(error.serial, (error.revision, ""))
            if last is None or error.serial > last:
                told.error, name = error.serial, error_id(error)
                yield Error(error, again=False, id=name)
            elif not name:  # from before the sink was there
                continue
            elif error.revision > revision:
                yield Error(error, again=True, id=name)
            told.errors[error.serial] = error.revision, name


def _begun(latest: Snapshot | None) -> _Told:
    """Begin behind what has happened so far."""
    if latest is None:
        return _Told(0, 0)
    ended = latest.usage.ended if latest.usage is not None else ()
    return _Told(
        ended[-1].serial if ended else None,
        latest.xids[-1].serial if latest.xids else None,
    )
