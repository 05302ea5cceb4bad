"""Problems of a configuration file, and where they are in the file."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_PROBLEMS = 100
"""How many problems are reported in full. Further problems are only counted."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of the file.

    Attributes:
        path: The place in the document, such as ``sources.gpus.interval``; empty for the file.
        message: The problem, on one line.
        hint: How to fix it, on one line; may be empty.
        line: Line in the file, counted from 1; None if unknown.
        column: Column in the line, in characters, counted from 1; None if unknown.
    """

    path: str
    message: str
    hint: str = ""
    line: int | None = None
    column: int | None = None

    def render(self, origin: str) -> str:
        """Return ``origin:line:column: path: message; hint``, without unknown parts."""
        place = ":".join(str(p) for p in (origin, self.line, self.column) if p is not None)
        text = ": ".join(filter(None, (place, self.path, self.message)))
        return f"{text}; {self.hint}" if self.hint else text


class ConfigError(Exception):
    """The configuration cannot be used.

    Attributes:
        origin: The file's name as it was given, or ``<built-in>``.
        problems: The problems in the order of the file. If there are more than ``MAX_PROBLEMS``
            + 1, these are the first ``MAX_PROBLEMS`` and one that counts the others.
    """

    def __init__(self, origin: str, problems: "Iterable[Problem]") -> None:
        ordered = sorted(problems, key=lambda p: (p.line or 0, p.column or 0))
        if len(ordered) > MAX_PROBLEMS + 1:
            rest = Problem("", f"{len(ordered) - MAX_PROBLEMS} more problems are not listed")
            ordered = [*ordered[:MAX_PROBLEMS], rest]
        self.origin = origin
        self.problems = tuple(ordered)
        super().__init__(origin, self.problems)

    def __str__(self) -> str:
        """Return a line for each problem."""
        return "\n".join(problem.render(self.origin) for problem in self.problems)
