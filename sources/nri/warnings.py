"""Warnings for the log, each logged once."""

from typing import Final

_MAX_KEYS: Final = 1024
"""How many keys are remembered. The oldest is forgotten first, and may be logged again."""


class OnceWarnings:
    """Collects warnings, one per key."""

    def __init__(self) -> None:
        self._warned: dict[str, None] = {}
        self._waiting: list[str] = []

    def add(self, key: str, text: str) -> None:
        """Add a warning, unless there was one with this key."""
        if key in self._warned or len(self._waiting) >= _MAX_KEYS:
            return
        if len(self._warned) >= _MAX_KEYS:
            del self._warned[next(iter(self._warned))]
        self._warned[key] = None
        self._waiting.append(text)

    def take(self) -> list[str]:
        """Return and clear the warnings that were added since the last call."""
        waiting, self._waiting = self._waiting, []
        return waiting
