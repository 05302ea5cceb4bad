"""What is wrong with a configuration file, and where."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_PROBLEMS = 100
"""More problems than this are counted, not listed: nobody reads them."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with the file.

    Attributes:
        path: The place in the document, ``sources.gpus.interval``; empty for the whole file.
        message: What is wrong, on one line.
        hint: What would mend it, on one line; may be empty.
        line: Line in the file, from 1; None where no line can be named.
        column: Column in characters, from 1; None where no line can be named.
    """

    path: str
    message: str
    hint: str = ""
    line: int | None = None
    column: int | None = None

    def render(self, origin: str) -> str:
        """Return ``origin:line:column: path: message; hint``, without the parts not known."""
        place = origin
        if self.line is not None:
            place += f":{self.line}"
            if self.column is not None:
                place += f":{self.column}"
        text = f"{place}: {self.path}: {self.message}" if self.path else f"{place}: {self.message}"
        return f"{text}; {self.hint}" if self.hint else text


class ConfigError(Exception):
    """The configuration cannot be used.

    Attributes:
        origin: The file's name as it was given, or ``<built-in>``.
        problems: Everything found wrong, in the order of the file; at most
            ``MAX_PROBLEMS`` and one that counts the rest.
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
        """Return one line for each problem."""
        return "\n".join(problem.render(self.origin) for problem in self.problems)
