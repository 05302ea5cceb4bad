"""Saying and counting once what is left as it is."""

from typing import Final

from pipeline.contracts import SinkContext
from pipeline.errors import ApiError
from sinks.pods.deciding import Decision, Trouble
from sinks.pods.holdings import Place, Wanted

_REMEMBERED: Final = 1024
"""Things said; beyond that the longest remembered is forgotten, and may be said a second time."""

_WHY: Final[dict[Trouble, str]] = {
    "none": "asks for no extended resource of which the kubelet says that it is GPUs",
    "several": "asks for several resources that are GPUs (%s); let `resources` name one of them",
    "more": "holds more devices than it has asked for as %s",
    "key": "holds devices as %s, which can be no annotation's name",
}


class Telling:
    """Says what isn't written, and why.

    Args:
        ctx: of the sink.
    """

    def __init__(self, ctx: SinkContext) -> None:
        self._ctx = ctx
        self._said: dict[tuple[str, ...], None] = {}

    def decided(self, place: Place, what: Wanted, decision: Decision) -> None:
        """Say what a decision leaves alone."""
        log = self._ctx.log
        if decision.reason:
            log.debug("pod %s %s: nothing is written", place, decision.reason)
        for key in decision.foreign:
            if self._new("foreign", *place, what.uid, key):
                self._count("foreign")
                log.info(
                    "pod %s: annotation %s was written by somebody else: it stays as it is",
                    place,
                    key,
                )
        for unclear in decision.unclear:
            names = ", ".join(unclear.resources)
            if unclear.trouble != "none" and self._new(
                unclear.trouble, *place, what.uid, unclear.container, names
            ):
                self._count("unclear")
            if self._new(unclear.trouble, names):
                why = _WHY[unclear.trouble]
                log.info(
                    "pod %s: container %s %s: nothing is written for it; said once for all pods",
                    place,
                    unclear.container or "(unknown)",
                    why % names if "%s" in why else why,
                )

    def invalid(self, place: Place, keys: str, error: ApiError) -> None:
        """Say that the API server doesn't take what would be written."""
        self._count("invalid")
        if self._new("invalid", keys):
            self._ctx.log.warning(
                "pod %s: annotation %s can't be written: %s; see what admission policies allow "
                "and how large the pod's annotations are; said once for all pods",
                place,
                keys,
                error,
            )

    def _count(self, reason: str) -> None:
        self._ctx.meter.add("podgpu_sink_errors_total", operation="annotate", reason=reason)

    def _new(self, *what: str) -> bool:
        if what in self._said:
            return False
        if len(self._said) >= _REMEMBERED:
            del self._said[next(iter(self._said))]
        self._said[what] = None
        return True
