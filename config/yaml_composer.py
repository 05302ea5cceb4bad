"""Parses YAML text to nodes, without recursion and within fixed limits.

This module builds the tree from parser events. PyYAML's composer is not used, because it is
recursive, drops duplicate keys, and does not limit the values that aliases multiply.
"""

import re
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import yaml

from config.errors import Problem
from config.message_text import join_path, shown

MAX_DEPTH: Final = 32
"""The maximum number of nested levels; a real configuration has at most six."""
MAX_WEIGHT: Final = 50_000
"""The maximum number of values in the document. A value is counted at each use of its alias."""

_NOT_ALLOWED: Final = re.compile("[\0\ud800-\udfff]")
"""Characters that a path, or a text in UTF-8, cannot contain."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CORE: Final = "tag:yaml.org,2002:"
_TYPED: Final = {_CORE + name for name in ("null", "bool", "int", "float")}
_ALLOWED: Final = {
    "scalar": {None, "!", _CORE + "str"} | _TYPED,
    "list": {None, "!", _CORE + "seq"},
    "mapping": {None, "!", _CORE + "map"},
}


@dataclass(slots=True, eq=False)
class ScalarNode:
    """A single value without a type.

    Attributes:
        text: The text without YAML's quotes.
        plain: Whether the scalar has no quotes. YAML then derives its type from its text.
        line: Line in the file, counted from 1.
        column: Column in characters, counted from 1.
    """

    text: str
    plain: bool
    line: int
    column: int
    weight: int = 1


@dataclass(slots=True, eq=False)
class ListNode:
    """A list; ``weight`` counts it and all values in it, and an aliased value at each use."""

    line: int
    column: int
    items: "list[Node]" = field(default_factory=list)
    weight: int = 1


@dataclass(slots=True, frozen=True, eq=False)
class Entry:
    """One ``key: value`` of a mapping. Line and column are those of the key."""

    value: "Node"
    line: int
    column: int


@dataclass(slots=True, eq=False)
class MapNode:
    """A mapping; ``weight`` is calculated as that of a list, without keys."""

    line: int
    column: int
    entries: dict[str, Entry] = field(default_factory=dict)
    weight: int = 1


Node = ScalarNode | ListNode | MapNode


class _Fatal(Exception):  # noqa: N818 - carries a problem to compose()
    pass


def compose(text: str) -> tuple[Node | None, list[Problem]]:
    """Return the root of the document, and the problems of its YAML.

    The root is None if the document is empty, or after a problem that prevents a tree.
    """
    composer = _Composer()
    events: Any = yaml.parse(text, Loader=_LOADER)
    try:
        # ValueError: in the pure Python scanner, chr() fails for "\U00110000".
        with closing(events):
            for event in events:
                composer.feed(event)
    except _Fatal as fatal:
        return None, [*composer.problems, *fatal.args]
    except (yaml.YAMLError, ValueError) as error:
        return None, [*composer.problems, _syntax(error, text)]
    return composer.root, composer.problems


@dataclass(slots=True)
class _Frame:
    """A list or mapping that is not complete yet."""

    node: ListNode | MapNode
    anchor: str | None
    key: ScalarNode | None = None


class _Composer:
    def __init__(self) -> None:
        self.root: Node | None = None
        self.problems: list[Problem] = []
        self._frames: list[_Frame] = []
        self._anchors: dict[str, Node | None] = {}  # None while the anchored value is open
        self._documents = 0
        self._seen = 0

    def feed(self, event: Any) -> None:
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            self._open(event, ListNode(*_mark(event)), "list")
        elif isinstance(event, yaml.MappingStartEvent):
            self._open(event, MapNode(*_mark(event)), "mapping")
        elif isinstance(event, yaml.CollectionEndEvent):
            frame = self._frames.pop()
            if frame.anchor:
                self._anchors[frame.anchor] = frame.node
            self._attach(frame.node)
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)
        elif isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                self._fail(event, "a second document starts here", "keep one document per file")

    def _scalar(self, event: Any) -> None:
        self._count(event)
        self._check_tag(event, "scalar")
        plain = event.tag in _TYPED or (event.tag is None and not event.style)
        node = ScalarNode(event.value, plain, *_mark(event))
        if _NOT_ALLOWED.search(node.text):
            text = "the text contains a zero character or a surrogate (U+D800 to U+DFFF)"
            self._problem(event, text, "remove it")
        if event.anchor:
            self._anchors[event.anchor] = node
        self._attach(node)

    def _open(self, event: Any, node: ListNode | MapNode, noun: str) -> None:
        self._count(event)
        self._check_tag(event, noun)
        if len(self._frames) >= MAX_DEPTH:
            # Without the path, which would be too long.
            message = f"nested more than {MAX_DEPTH} levels deep"
            raise _Fatal(Problem("", message, "", *_mark(event)))
        if event.anchor:
            self._anchors[event.anchor] = None
        self._frames.append(_Frame(node, event.anchor))

    def _alias(self, event: Any) -> None:
        name = event.anchor
        if name not in self._anchors:
            self._fail(
                event, f"the alias *{name[:60]} has no anchor", "define the anchor before the alias"
            )
        node = self._anchors[name]
        if node is None:
            self._fail(event, f"the alias *{name[:60]} is inside its own anchor", "")
        else:
            self._attach(node, event)

    def _attach(self, node: Node, alias: Any = None) -> None:
        if not self._frames:
            self.root = node
            return
        frame = self._frames[-1]
        parent = frame.node
        if isinstance(parent, ListNode):
            parent.items.append(node)
        elif frame.key is None:
            frame.key = self._key(node, *(_mark(alias) if alias else (node.line, node.column)))
            return
        else:
            key, frame.key = frame.key, None
            # setdefault: the first of two equal keys is kept; the second was reported.
            parent.entries.setdefault(key.text, Entry(node, key.line, key.column))
        parent.weight += node.weight
        if parent.weight > MAX_WEIGHT:
            raise _Fatal(_too_large(parent.line, parent.column))

    def _key(self, node: Node, line: int, column: int) -> ScalarNode:
        parent = self._frames[-1].node
        here = self._path()
        if not isinstance(node, ScalarNode):
            message, hint = "a list or mapping cannot be a key", "quote the key if it is a text"
            raise _Fatal(Problem(here, message, hint, line, column))
        text, hint = node.text, ""
        message = ""
        if not text:
            message = "a key is empty"
        elif text == "<<" and node.plain:
            message, hint = "merge keys are not supported", "write all options here"
        elif "${" in text:
            message = f"the key {shown(text)} contains a placeholder"
            hint = "placeholders work only in values"
        elif isinstance(parent, MapNode) and text in parent.entries:
            here = join_path((*self._steps(), text))
            first = parent.entries[text].line
            message, hint = f"duplicate key, first on line {first}", "keep one of them"
        if message:
            self.problems.append(Problem(here, message, hint, line, column))
        return ScalarNode(text, node.plain, line, column)

    def _count(self, event: Any) -> None:
        self._seen += 1
        if self._seen > 2 * MAX_WEIGHT:  # a weight does not include keys
            raise _Fatal(_too_large(*_mark(event)))

    def _check_tag(self, event: Any, noun: str) -> None:
        if event.tag not in _ALLOWED[noun]:
            tag = event.tag.replace(_CORE, "!!")
            self._problem(event, f"the tag {shown(tag)} is not supported here", "remove the tag")

    def _steps(self) -> tuple[str | int, ...]:
        steps: list[str | int] = []
        for frame in self._frames:
            if isinstance(frame.node, ListNode):
                steps.append(len(frame.node.items))
            elif frame.key is not None:
                steps.append(frame.key.text)
        return tuple(steps)

    def _path(self) -> str:
        return join_path(self._steps())

    def _problem(self, event: Any, message: str, hint: str) -> None:
        self.problems.append(Problem(self._path(), message, hint, *_mark(event)))

    def _fail(self, event: Any, message: str, hint: str) -> NoReturn:
        raise _Fatal(Problem(self._path(), message, hint, *_mark(event)))


def _mark(event: Any) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1


def _too_large(line: int, column: int) -> Problem:
    message = f"more than {MAX_WEIGHT} values, with aliases counted at each use"
    return Problem("", message, "make the file smaller", line, column)


def _syntax(error: Exception, text: str) -> Problem:
    """Return a problem for an error of the YAML parser."""
    mark = getattr(error, "problem_mark", None)
    place = (mark.line + 1, mark.column + 1) if mark else (None, None)
    what = str(getattr(error, "problem", None) or getattr(error, "reason", None) or error)
    hint = ""
    if "cannot start any token" in what:
        hint = "indent with spaces, and quote a value that starts with @, `, % or a tab"
    elif "mapping values are not allowed" in what:
        hint = 'quote a value that contains ": "'
    elif "did not find expected ','" in what or "expected ',' or" in what:
        line = text.splitlines()[mark.line] if mark and mark.line < len(text.splitlines()) else ""
        if "${" in line:
            hint = "quote a placeholder inside { } or [ ], or write one key per line"
    return Problem("", f"not valid YAML: {' '.join(what.split())}", hint, *place)
