"""Saying once what was left out of pods."""

import logging
from typing import Final

from sources.pods.pod_mapper import Left

_REMEMBERED: Final = 1024
"""Pods; beyond that the longest remembered is forgotten, and may be named a second time."""


class Complaints:
    """Warns of each annotation of each pod once, and of labels that were cut once in all."""

    def __init__(self, log: logging.Logger, most: int) -> None:
        self._log = log
        self._most = most
        self._cut = False
        self._said: dict[tuple[str, str], None] = {}

    def report(self, left: Left) -> None:
        """Warn of what is new."""
        if left.beyond and not self._cut:
            self._cut = True
            self._log.warning(
                "pod %s: %d labels or annotations are left out: more than %d, or longer than a "
                "kibibyte; let fewer through or raise max_labels; said once for all pods",
                left.pod,
                left.beyond,
                self._most,
            )
        for complaint in left.complaints:
            key = (left.uid, complaint.annotation)
            if key in self._said:
                continue
            if len(self._said) >= _REMEMBERED:
                del self._said[next(iter(self._said))]
            self._said[key] = None
            self._log.warning(
                "pod %s: annotation %s: %s; it is left out",
                left.pod,
                complaint.annotation,
                complaint.text,
            )
