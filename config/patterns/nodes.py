"""The syntax tree of a regular expression."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Letter:
    """A character class: one character of a set, or if negated, one that is not in the set."""

    letters: frozenset[str]
    negated: bool = False

    def fits(self, letter: str) -> bool:
        """Return whether a character belongs to the class."""
        return (letter in self.letters) is not self.negated


@dataclass(frozen=True, slots=True)
class Edge:
    """A position: `start`, `end`, `word` (a word boundary) or `within` (no word boundary)."""

    kind: str


@dataclass(frozen=True, slots=True)
class Row:
    """A sequence."""

    items: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Either:
    """Alternatives."""

    ways: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Repeated:
    """A repetition from `least` to `most` times; None means no maximum."""

    inner: "Node"
    least: int
    most: int | None


Node: TypeAlias = Letter | Edge | Row | Either | Repeated
