"""Warnings about dropped labels and unreadable annotations of pods, each logged once."""

import logging
from typing import Final

from sources.pods.pod_mapper import PodOmissions

_MAX_REMEMBERED: Final = 1024
"""Number of remembered warnings. Beyond it the oldest one is forgotten, and may be logged again."""


class PodWarnings:
    """Logs each unreadable annotation of each pod once, and dropped labels once for all pods."""

    def __init__(self, log: logging.Logger, most: int) -> None:
        self._log = log
        self._limit = most
        self._drop_logged = False
        self._warned: dict[tuple[str, str], None] = {}

    def report(self, left: PodOmissions) -> None:
        """Log what was not logged before."""
        if left.omitted and not self._drop_logged:
            self._drop_logged = True
            self._log.warning(
                "pod %s: %d labels or annotations are dropped: more than %d, or longer than 1 KiB; "
                "select fewer or raise max_labels (logged once for all pods)",
                left.pod,
                left.omitted,
                self._limit,
            )
        for complaint in left.complaints:
            key = (left.uid, complaint.annotation)
            if key in self._warned:
                continue
            if len(self._warned) >= _MAX_REMEMBERED:
                del self._warned[next(iter(self._warned))]
            self._warned[key] = None
            self._log.warning(
                "pod %s: annotation %s: %s; it is ignored",
                left.pod,
                complaint.annotation,
                complaint.text,
            )
