"""The YAML document as a tree in which every value knows its line and column."""

from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class ScalarNode:
    """A single value, not typed yet.

    Attributes:
        text: The text after YAML's own unquoting.
        plain: True for an unquoted scalar, whose type YAML takes from its text.
        line: From 1.
        column: In characters, from 1.
    """

    text: str
    plain: bool
    line: int
    column: int
    weight: int = 1


@dataclass(slots=True, eq=False)
class ListNode:
    """A list; ``weight`` counts the values below, those behind aliases at each use."""

    line: int
    column: int
    items: "list[Node]" = field(default_factory=list)
    weight: int = 1


@dataclass(slots=True, frozen=True, eq=False)
class Entry:
    """One ``key: value`` of a mapping; line and column are those of the key."""

    value: "Node"
    line: int
    column: int


@dataclass(slots=True, eq=False)
class MapNode:
    """A mapping; ``weight`` counts as in a list."""

    line: int
    column: int
    entries: dict[str, Entry] = field(default_factory=dict)
    weight: int = 1


Node = ScalarNode | ListNode | MapNode
