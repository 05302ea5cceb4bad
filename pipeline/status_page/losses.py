"""Remembers since when a sink has lost as much as it has, from one look to the next."""

from collections.abc import Mapping
from typing import Final

from pipeline.model import Instant
from pipeline.status_page.components import figures
from pipeline.status_page.known import Known

_LOST: Final = ("sink_dropped_total", "sink_rejected_total")


class Losses:
    """What was lost when somebody last looked: counters alone don't say when they rose."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, Instant]] = {}

    def seen(self, known: Known) -> Mapping[str, Instant]:
        """Return for each sink when as much was first seen to be lost as now."""
        told = figures(known, "sink")
        now: dict[str, tuple[float, Instant]] = {}
        for name in known.sinks:
            lost = sum(told.get((family, name), 0.0) for family in _LOST)
            before = self._seen.get(name)
            same = before is not None and before[0] == lost
            now[name] = before if before is not None and same else (lost, known.now)
        self._seen = now
        return {name: at for name, (_, at) in now.items()}
