"""Saying once what was left out of pods."""

import logging
from typing import Final

from sources.pods.pod_mapper import PodOmissions

_REMEMBERED: Final = 1024
"""Pods; beyond that the longest remembered is forgotten, and may be named a second time."""


class OmissionLog:
    """Warns of each annotation of each pod once, and of labels that were cut once in all."""

    def __init__(self, log: logging.Logger, most: int) -> None:
        self._log = log
        self._most = most
        self._cut = False
        self._warned: dict[tuple[str, str], None] = {}

    def report(self, left: PodOmissions) -> None:
        """Warn of what is new."""
        if left.omitted and not self._cut:
            self._cut = True
            self._log.warning(
                "pod %s: %d labels or annotations are left out: more than %d, or longer than a "
                "kibibyte; let fewer through or raise max_labels; said once for all pods",
                left.pod,
                left.omitted,
                self._most,
            )
        for complaint in left.complaints:
            key = (left.uid, complaint.annotation)
            if key in self._warned:
                continue
            if len(self._warned) >= _REMEMBERED:
                del self._warned[next(iter(self._warned))]
            self._warned[key] = None
            self._log.warning(
                "pod %s: annotation %s: %s; it is left out",
                left.pod,
                complaint.annotation,
                complaint.text,
            )
