"""The YAML document as a tree; every value has its line and column."""

from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class ScalarNode:
    """A single value without a type.

    Attributes:
        text: The text without YAML's quotes.
        plain: True for an unquoted scalar; YAML takes its type from its text.
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
    """A list; ``weight`` is the number of values in it, with aliases counted at each use."""

    line: int
    column: int
    items: "list[Node]" = field(default_factory=list)
    weight: int = 1


@dataclass(slots=True, frozen=True, eq=False)
class Entry:
    """One ``key: value`` of a mapping, with line and column of the key."""

    value: "Node"
    line: int
    column: int


@dataclass(slots=True, eq=False)
class MapNode:
    """A mapping; ``weight`` as in a list."""

    line: int
    column: int
    entries: dict[str, Entry] = field(default_factory=dict)
    weight: int = 1


Node = ScalarNode | ListNode | MapNode
