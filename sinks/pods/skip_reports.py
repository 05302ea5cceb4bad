"""Saying and counting once what is left as it is."""

from collections.abc import Collection
from typing import Final, Literal

from pipeline.base.errors import ApiError
from pipeline.component.contracts import SinkContext
from pipeline.component.warnings import warn
from sinks.pods.annotation_decision import Decision, Trouble
from sinks.pods.held_devices import DesiredAnnotations, PodRef

_REMEMBERED: Final = 1024
"""Things said for all pods, and pods that no longer hold anything; beyond that the longest
remembered is forgotten, and may be said a second time."""

_OF_A_POD: Final = 256
"""Things said of one pod."""

_REASON_TEXTS: Final[dict[Trouble, str]] = {
    "none": "asks for no extended resource of which the kubelet says that it is GPUs",
    "several": "asks for several resources that are GPUs (%s); let `resources` name one of them",
    "more": "holds more devices than it has asked for as %s",
    "key": "holds devices as %s, which can be no annotation's name",
}

Refusal = Literal["denied", "invalid", "dropped"]

_FIXES: Final[dict[Refusal, str]] = {
    "denied": "let whoever runs that webhook or policy allow podgpu's annotations",
    "invalid": "see how large the pod's annotations are, and what admission policies allow",
    "dropped": "the API server took the change, and what it sent back doesn't have it; see which "
    "mutating webhook takes annotations away, and that nothing in between answers for the server",
}


class DecisionLog:
    """Says what isn't written, and why.

    Args:
        ctx: of the sink.
    """

    def __init__(self, ctx: SinkContext) -> None:
        self._ctx = ctx
        self._said: dict[tuple[str, str], None] = {}
        self._of_pods: dict[PodRef, set[tuple[str, ...]]] = {}

    def retain(self, places: Collection[PodRef]) -> None:
        """Forget what was said of pods that hold nothing any more, once they are many."""
        if len(self._of_pods) > _REMEMBERED:
            said = self._of_pods.items()
            self._of_pods = {place: told for place, told in said if place in places}

    def on_decision(self, place: PodRef, what: DesiredAnnotations, decision: Decision) -> None:
        """Say what a decision leaves alone."""
        log = self._ctx.log
        if decision.reason:
            log.debug("pod %s %s: nothing is written", place, decision.reason)
        for key in decision.foreign:
            if self._new_of(place, "foreign", what.uid, key):
                self._count("foreign")
                log.info(
                    "pod %s: annotation %s was written by somebody else: it stays as it is",
                    place,
                    key,
                )
        for unclear in decision.unclear:
            names = ", ".join(unclear.resources)
            if unclear.trouble != "none" and self._new_of(
                place, unclear.trouble, what.uid, unclear.container, names
            ):
                self._count("unclear")
            if self._new(unclear.trouble, names):
                why = _REASON_TEXTS[unclear.trouble]
                log.info(
                    "pod %s: container %s %s: nothing is written for it; said once for all pods",
                    place,
                    unclear.container or "(unknown)",
                    why % names if "%s" in why else why,
                )

    def on_refusal(
        self, how: Refusal, place: PodRef, keys: Collection[str], error: ApiError | None = None
    ) -> None:
        """Say that what would be written doesn't come to stand there."""
        self._count("invalid")
        names = ", ".join(keys)
        warn(
            self._ctx,
            "pod %s: annotation %s can't be written: %s%s; tried again later; said once for all "
            "pods",
            place,
            names,
            f"{error}; " if error else "",
            _FIXES[how],
            is_new=self._new(how, names),
        )

    def _count(self, reason: str) -> None:
        self._ctx.meter.add("podgpu_sink_errors_total", operation="annotate", reason=reason)

    def _new(self, how: str, names: str) -> bool:
        what = (how, names)
        if what in self._said:
            return False
        if len(self._said) >= _REMEMBERED:
            del self._said[next(iter(self._said))]
        self._said[what] = None
        return True

    def _new_of(self, place: PodRef, *what: str) -> bool:
        said = self._of_pods.setdefault(place, set())
        if what in said:
            return False
        if len(said) >= _OF_A_POD:
            said.clear()
        said.add(what)
        return True
