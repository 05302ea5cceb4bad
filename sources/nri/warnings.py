"""What people should know, said once."""

from typing import Final

_REMEMBERED: Final = 1024
"""Things that were complained of; the longest remembered is forgotten, and may be named again."""


class Complaints:
    """Texts for the log, one for each thing that they are about."""

    def __init__(self) -> None:
        self._said: dict[str, None] = {}
        self._waiting: list[str] = []

    def add(self, about: str, text: str) -> None:
        """Say something, unless that was complained of before."""
        if about in self._said or len(self._waiting) >= _REMEMBERED:
            return
        if len(self._said) >= _REMEMBERED:
            del self._said[next(iter(self._said))]
        self._said[about] = None
        self._waiting.append(text)

    def take(self) -> list[str]:
        """Return what was not taken yet."""
        waiting, self._waiting = self._waiting, []
        return waiting
