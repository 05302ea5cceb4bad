"""Queue of pods whose annotations have to be checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pipeline.model import NS
from sinks.pods.held_devices import DesiredAnnotations, PodRef

AGAIN: Final = 600.0
"""Seconds after which a pod is checked again: a new pod may have the same name by then."""

_FIRST_RETRY: Final = 10.0
"""Seconds until the first retry. Each further delay is twice as long, up to `AGAIN`."""


@dataclass(slots=True)
class _PodState:
    """State of a pod.

    Attributes:
        desired: the annotations that the pod should have.
        due_ns: when the pod is due; 0 if it is new or its desired annotations have changed.
        failures: number of failed updates since the last success.
        done: the desired annotations at the last successful update; None if the result of the last
            update is unknown.
        done_ns: the time of the last successful update.
    """

    desired: DesiredAnnotations
    due_ns: int = 0
    failures: int = 0
    done: DesiredAnnotations | None = None
    done_ns: int = 0


class PodQueue:
    """The pods that hold devices, with the time at which each is due for a check.

    Pods that are new, or whose desired annotations have changed, come first, in the order in which
    they were added. Then come the pods that have been due for the longest time, so that a pod that
    fails does not delay others.
    """

    def __init__(self) -> None:
        self._entries: dict[PodRef, _PodState] = {}

    def update(self, wanted: Mapping[PodRef, DesiredAnnotations]) -> None:
        """Set the desired annotations of all pods, and remove pods that are not in `wanted`."""
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
        """Return a pod that is due, with its desired annotations; None if no pod is due."""
        if not self._entries:
            return None
        place, entry = min(self._entries.items(), key=lambda item: item[1].due_ns)
        if entry.due_ns > now_ns:
            return None
        # The result is unknown until the update is done: the response may be lost.
        entry.done, entry.due_ns = None, now_ns
        return place, entry.desired

    def record_done(self, place: PodRef, now_ns: int) -> None:
        """Record that the update of a pod succeeded."""
        if entry := self._entries.get(place):
            entry.done, entry.done_ns, entry.failures = entry.desired, now_ns, 0
            entry.due_ns = now_ns + round(AGAIN * NS)

    def postpone(self, place: PodRef, now_ns: int) -> None:
        """Record that the update of a pod failed. It is tried again after a delay."""
        if entry := self._entries.get(place):
            wait = min(_FIRST_RETRY * 2 ** min(entry.failures, 10), AGAIN)
            entry.failures += 1
            entry.due_ns = now_ns + round(wait * NS)

    def seconds_left(self, now_ns: int) -> float | None:
        """Return the seconds until the next pod is due; None if there are no pods."""
        due = min((entry.due_ns for entry in self._entries.values()), default=None)
        return None if due is None else max((due - now_ns) / NS, 0)
