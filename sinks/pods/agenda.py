"""Which pods are to be looked at, and when."""

from collections.abc import Mapping

from pipeline.model import NS
from sinks.pods.holdings import Place, Wanted


class Agenda:
    """Remembers of each pod that holds something what was last seen to, and what is still to be.

    A pod that is done isn't looked at again until what it holds changes. One that couldn't be done
    comes after all others, so that it can't keep them waiting.
    """

    def __init__(self) -> None:
        self._wanted: Mapping[Place, Wanted] = {}
        self._done: dict[Place, Wanted] = {}
        self._due: dict[Place, int] = {}

    def take(self, wanted: Mapping[Place, Wanted]) -> None:
        """Take in what all pods hold now; those that are not named hold nothing that is known."""
        self._wanted = wanted
        for table in (self._done, self._due):
            for place in [place for place in table if place not in wanted]:
                del table[place]
        for place, what in wanted.items():
            if self._done.get(place) == what:
                self._due.pop(place, None)
            else:
                self._due.setdefault(place, 0)

    def begin(self, now_ns: int) -> tuple[Place, Wanted] | None:
        """Return a pod that is due, and what is to stand there; None if there is none."""
        place = next((place for place, due in self._due.items() if due <= now_ns), None)
        if place is None:
            return None
        # What stands there is known again once somebody has looked: an answer may be lost.
        self._done.pop(place, None)
        self._due[place] = self._due.pop(place)
        return place, self._wanted[place]

    def finish(self, place: Place, what: Wanted) -> None:
        """Note that a pod was seen to."""
        self._done[place] = what
        self._due.pop(place, None)

    def put_off(self, place: Place, until_ns: int) -> None:
        """Note that a pod has to be looked at again, and not before."""
        self._due[place] = until_ns

    def left(self, now_ns: int) -> float | None:
        """Return the seconds until a pod is due; None if all are done."""
        return max((min(self._due.values()) - now_ns) / NS, 0) if self._due else None
