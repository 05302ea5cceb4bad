"""Logs and counts annotations that are not written."""

from collections.abc import Collection
from typing import Final, Literal

from pipeline.base.bounded_dict import set_last
from pipeline.base.errors import ApiError
from pipeline.component.contracts import SinkContext
from pipeline.component.warnings import warn
from sinks.pods.annotation_decision import Decision, Trouble
from sinks.pods.held_devices import DesiredAnnotations, PodRef

_MAX_REMEMBERED: Final = 16_384
"""Maximum number of remembered messages. The oldest is forgotten first, and may be logged again."""

_REASON_TEXTS: Final[dict[Trouble, str]] = {
    "none": "requests no extended resource that the kubelet lists with GPUs",
    "several": "requests several extended resources with GPUs (%s); set `resources` to one of them",
    "more": "holds more devices than it requested as %s",
    "key": "holds devices as %s, which cannot be the key of an annotation",
}

Refusal = Literal["denied", "invalid", "dropped"]

_FIXES: Final[dict[Refusal, str]] = {
    "denied": "allow podgpu's annotations in that webhook or policy",
    "invalid": "check the size of the pod's annotations, and the admission policies",
    "dropped": "the API server accepted the change, but its response does not contain it; check "
    "which mutating webhook removes annotations, and that no proxy responds in place of the server",
}


class SkipReports:
    """Logs and counts which annotations are not written, and why.

    Args:
        ctx: context of the sink.
    """

    def __init__(self, ctx: SinkContext) -> None:
        self._ctx = ctx
        self._logged: dict[tuple[str | PodRef, ...], None] = {}

    def on_decision(self, place: PodRef, what: DesiredAnnotations, decision: Decision) -> None:
        """Log and count what a decision does not write. A repeated case is neither."""
        log = self._ctx.log
        if decision.reason:
            log.debug("pod %s %s: nothing is written", place, decision.reason)
        for key in decision.foreign:
            if self._is_new(place, "foreign", what.uid, key):
                self._count("foreign")
                log.info(
                    "pod %s: another program wrote annotation %s; podgpu does not change it",
                    place,
                    key,
                )
        for unclear in decision.unclear:
            names = ", ".join(unclear.resources)
            if unclear.trouble != "none" and self._is_new(
                place, unclear.trouble, what.uid, unclear.container, names
            ):
                self._count("unclear")
            if self._is_new(unclear.trouble, names):
                why = _REASON_TEXTS[unclear.trouble]
                log.info(
                    "pod %s: container %s %s; nothing is written for it; logged once for all pods",
                    place,
                    unclear.container or "(unknown)",
                    why % names if "%s" in why else why,
                )

    def on_refusal(
        self, how: Refusal, place: PodRef, keys: Collection[str], error: ApiError | None = None
    ) -> None:
        """Count a change that was refused or dropped, and log the first one of its kind."""
        self._count("invalid")
        names = ", ".join(keys)
        warn(
            self._ctx,
            "pod %s: cannot write annotation %s: %s%s; podgpu retries later; logged once for all "
            "pods",
            place,
            names,
            f"{error}; " if error else "",
            _FIXES[how],
            is_new=self._is_new(how, names),
        )

    def _count(self, reason: str) -> None:
        self._ctx.meter.add("podgpu_sink_errors_total", operation="annotate", reason=reason)

    def _is_new(self, *what: str | PodRef) -> bool:
        """Whether this message was not logged before. Remember it."""
        if what in self._logged:
            return False
        set_last(self._logged, what, None, _MAX_REMEMBERED)
        return True
