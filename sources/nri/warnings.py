"""What people should know, said once."""

from typing import Final

_REMEMBERED: Final = 1024
"""Things that were complained of; the longest remembered is forgotten, and may be named again."""


class OnceWarnings:
    """Texts for the log, one for each thing that they are about."""

    def __init__(self) -> None:
        self._warned: dict[str, None] = {}
        self._waiting: list[str] = []

    def add(self, key: str, text: str) -> None:
        """Say something, unless that was complained of before."""
        if key in self._warned or len(self._waiting) >= _REMEMBERED:
            return
        if len(self._warned) >= _REMEMBERED:
            del self._warned[next(iter(self._warned))]
        self._warned[key] = None
        self._waiting.append(text)

    def take(self) -> list[str]:
        """Return what was not taken yet."""
        waiting, self._waiting = self._waiting, []
        return waiting
