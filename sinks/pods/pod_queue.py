"""Queue of pods to update, by time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pipeline.model import NS
from sinks.pods.held_devices import DesiredAnnotations, PodRef

AGAIN: Final = 600.0
"""Seconds after which a pod is checked again: another pod may have its name by then."""

_FIRST_RETRY: Final = 10.0
"""Seconds until a failed pod is tried again; twice as long each time, up to `AGAIN`."""


@dataclass(slots=True)
class _PodState:
    """State of a pod.

    Attributes:
        desired: the annotations that it should have.
        due_ns: when it is to be checked; 0 if it was never checked.
        failures: how often in a row the update failed.
        done: the annotations that it had after the last update; None if unknown.
        done_ns: the time of that update.
    """

    desired: DesiredAnnotations
    due_ns: int = 0
    failures: int = 0
    done: DesiredAnnotations | None = None
    done_ns: int = 0


class PodQueue:
    """Remembers for each pod that holds devices what was last written, and when it is due.

    Pods that were never checked come first, in their order; then the pods that have been due for
    the longest time, so that a pod that fails does not delay others.
    """

    def __init__(self) -> None:
        self._entries: dict[PodRef, _PodState] = {}

    def update(self, wanted: Mapping[PodRef, DesiredAnnotations]) -> None:
        """Set the desired annotations of all pods; a pod that is missing holds no known devices."""
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
        """Return a pod that is due, with its desired annotations; None if there is none."""
        if not self._entries:
            return None
        place, entry = min(self._entries.items(), key=lambda item: item[1].due_ns)
        if entry.due_ns > now_ns:
            return None
        # The result is unknown until the update is done: the response may be lost.
        entry.done, entry.due_ns = None, now_ns
        return place, entry.desired

    def record_done(self, place: PodRef, now_ns: int) -> None:
        """Record that a pod was updated."""
        if entry := self._entries.get(place):
            entry.done, entry.done_ns, entry.failures = entry.desired, now_ns, 0
            entry.due_ns = now_ns + round(AGAIN * NS)

    def postpone(self, place: PodRef, now_ns: int) -> None:
        """Record that the update of a pod failed, so that it waits."""
        if entry := self._entries.get(place):
            wait = min(_FIRST_RETRY * 2 ** min(entry.failures, 10), AGAIN)
            entry.failures += 1
            entry.due_ns = now_ns + round(wait * NS)

    def seconds_left(self, now_ns: int) -> float | None:
        """Return the seconds until a pod is due; None if there is none."""
        due = min((entry.due_ns for entry in self._entries.values()), default=None)
        return None if due is None else max((due - now_ns) / NS, 0)
