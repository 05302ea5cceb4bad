"""Which pods are to be looked at, and when."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pipeline.model import NS
from sinks.pods.held_devices import DesiredAnnotations, PodRef

AGAIN: Final = 600.0
"""Seconds after which a pod that is done is looked at again: it may be another one by now."""

_FIRST: Final = 10.0
"""Seconds until a pod that couldn't be done is looked at again; twice as long each time, up to
`AGAIN`."""


@dataclass(slots=True)
class _PodState:
    """What is known of a pod.

    Attributes:
        desired: is to stand there.
        due_ns: when it is to be looked at; 0 for what nobody has looked at yet.
        failures: how often in a row it couldn't be done.
        done: what was last seen to; None where nobody knows.
        done_ns: when.
    """

    desired: DesiredAnnotations
    due_ns: int = 0
    failures: int = 0
    done: DesiredAnnotations | None = None
    done_ns: int = 0


class PodQueue:
    """Remembers of each pod that holds something what was last seen to, and what is still to be.

    What nobody has looked at comes first, in its order; then whatever has been due for longest, so
    that no pod which can't be done keeps others waiting.
    """

    def __init__(self) -> None:
        self._entries: dict[PodRef, _PodState] = {}

    def update(self, wanted: Mapping[PodRef, DesiredAnnotations]) -> None:
        """Take in what all pods hold now; those that are not named hold nothing that is known."""
        for place in [place for place in self._entries if place not in wanted]:
            del self._entries[place]
        for place, what in wanted.items():
            entry = self._entries.get(place)
            if entry is None:
                self._entries[place] = _PodState(what)
            elif entry.desired != what:
                entry.desired, entry.failures = what, 0
                entry.due_ns = entry.done_ns + round(AGAIN * NS) if entry.done == what else 0

    def next(self, now_ns: int) -> tuple[PodRef, DesiredAnnotations] | None:
        """Return a pod that is due, and what is to stand there; None if there is none."""
        if not self._entries:
            return None
        place, entry = min(self._entries.items(), key=lambda item: item[1].due_ns)
        if entry.due_ns > now_ns:
            return None
        # What stands there is known again once somebody has looked: an answer may be lost.
        entry.done, entry.due_ns = None, now_ns
        return place, entry.desired

    def record_done(self, place: PodRef, now_ns: int) -> None:
        """Note that a pod was seen to."""
        if entry := self._entries.get(place):
            entry.done, entry.done_ns, entry.failures = entry.desired, now_ns, 0
            entry.due_ns = now_ns + round(AGAIN * NS)

    def postpone(self, place: PodRef, now_ns: int) -> None:
        """Note that a pod couldn't be done, and isn't to be looked at for a while."""
        if entry := self._entries.get(place):
            wait = min(_FIRST * 2 ** min(entry.failures, 10), AGAIN)
            entry.failures += 1
            entry.due_ns = now_ns + round(wait * NS)

    def seconds_left(self, now_ns: int) -> float | None:
        """Return the seconds until a pod is due; None if there is none."""
        due = min((entry.due_ns for entry in self._entries.values()), default=None)
        return None if due is None else max((due - now_ns) / NS, 0)
