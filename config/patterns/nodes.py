"""What regular expressions are made of."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Letter:
    """One letter: one of these, or if negated any other."""

    letters: frozenset[str]
    negated: bool = False

    def fits(self, letter: str) -> bool:
        """Tell whether it is one of them."""
        return (letter in self.letters) is not self.negated


@dataclass(frozen=True, slots=True)
class Edge:
    """A place between letters: `start`, `end`, `word` (where a word begins or ends) or `within`."""

    kind: str


@dataclass(frozen=True, slots=True)
class Row:
    """One after the other."""

    items: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Either:
    """One of several."""

    ways: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Repeated:
    """As often as this; None stands for any number."""

    inner: "Node"
    least: int
    most: int | None


Node: TypeAlias = Letter | Edge | Row | Either | Repeated
