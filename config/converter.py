"""Converts YAML nodes to typed values, and reports every problem that it finds."""

import re
import socket
from collections.abc import Iterable, Sequence
from typing import Final, Literal, Protocol, cast, runtime_checkable

import msgspec

from config.env_expansion import Environment, ExpansionError
from config.errors import MAX_PROBLEMS, Problem
from config.message_text import did_you_mean, join_path, shown
from config.scalar_values import Refused, Value, read_scalar, wanted
from config.schema import Component
from config.type_shapes import (
    Choice,
    Components,
    Field,
    Items,
    Limits,
    Maybe,
    Record,
    Scalar,
    Shape,
    Table,
    record,
)
from config.yaml_composer import Entry, ListNode, MapNode, Node, ScalarNode

NAME: Final = r"[a-z][a-z0-9_-]{0,62}"
"""Regular expression for the names that a source or a sink can have."""

_SIMPLE: Final = re.compile(r"[A-Za-z0-9_./-]{1,40}")  # needs no quotes within [ ]

_Path = tuple[str | int, ...]


class Kinds(Protocol):
    """The kinds of components that exist. A role is ``source`` or ``sink``."""

    def names(self, role: str) -> Sequence[str]:
        """Return the kinds of a role, in display order."""

    def options(self, role: str, kind: str) -> type[msgspec.Struct]:
        """Return the options class of a kind; the kind must be one that ``names`` returned."""

    def allowed_values(self, noun: str) -> Iterable[str]:
        """Return all values of an option that is marked ``OneOf(noun)``."""

    def hint(self, noun: str, word: str) -> str:
        """Return how to correct a word that ``allowed_values`` does not have; empty for nothing."""


@runtime_checkable
class Exclusive(Protocol):
    """Options that name resources which only one component can use: a file, an address."""

    def exclusive(self) -> Iterable[str]:
        """Return a description of each resource; equal texts mean the same resource."""


@runtime_checkable
class ExclusiveOnNode(Protocol):
    """Like ``Exclusive``, for resources that depend on the node's name."""

    def exclusive_on(self, node: str) -> Iterable[str]:
        """Return a description of each resource; equal texts mean the same resource.

        Args:
            node: the node's name in the file; if the file has none, the host name.
        """


class _Failed:
    """The type of the value that ``convert`` returns after it has reported a problem."""


_FAILED: Final = _Failed()


class Converter:
    """Converts one document. Problems are appended to ``problems``.

    Args:
        kinds: The kinds of components.
        environment: Expands placeholders; None if the document has no placeholders.
    """

    def __init__(self, kinds: Kinds, environment: Environment | None) -> None:
        self.problems: list[Problem] = []
        self._kinds = kinds
        self._words: dict[str, frozenset[str]] = {}
        self._environment = environment
        # Texts of the top level that come before the value that is being converted.
        self._top: dict[str, str] = {}

    def convert(self, shape: Shape, node: Node, path: _Path = ()) -> object:
        """Return the typed value. After a problem, the returned value must not be used."""
        match shape:
            case Scalar() | Choice():
                return self._scalar(shape, node, path)
            case Maybe():
                return self._maybe(shape, node, path)
            case Items():
                return self._items(shape, node, path)
            case Table():
                return self._table(shape, node, path)
            case Components():
                return self._components(shape, node, path)
            case Record():
                return self._record(shape, node, path)

    def _scalar(self, shape: Scalar | Choice, node: Node, path: _Path) -> object:
        if not isinstance(node, ScalarNode):
            return self._problem(path, node, f"expected {wanted(shape)}, found {_described(node)}")
        value = self._value(node, path)
        if value is None:
            return _FAILED
        try:
            read = read_scalar(shape, value)
        except Refused as refused:
            return self._problem(path, node, refused.message, refused.hint)
        if isinstance(shape, Scalar) and shape.known:
            return self._known_value(shape.known, str(read), value, node, path)
        return read

    def _known_value(self, noun: str, word: str, value: Value, node: Node, path: _Path) -> object:
        words = self._words.setdefault(noun, frozenset(self._kinds.allowed_values(noun)))
        if word in words:
            return word
        guessed = not value.expanded and len(self.problems) < MAX_PROBLEMS
        hint = self._kinds.hint(noun, word) if guessed else ""
        return self._problem(path, node, f"unknown {noun} {shown(value.written)}", hint)

    def _maybe(self, shape: Maybe, node: Node, path: _Path) -> object:
        if isinstance(node, ScalarNode):
            value = self._value(node, path)
            if value is None:
                return _FAILED
            if value.null:
                return None
        return self.convert(shape.inner, node, path)

    def _items(self, shape: Items, node: Node, path: _Path) -> object:
        if not isinstance(node, ListNode):
            single = isinstance(node, ScalarNode) and _SIMPLE.fullmatch(node.text)
            hint = f"write [{single[0]}]" if single else ""
            return self._problem(path, node, f"expected a list, found {_described(node)}", hint)
        items = [self.convert(shape.inner, item, (*path, i)) for i, item in enumerate(node.items)]
        return self._within(shape.limits, tuple(items), items, node, path)

    def _table(self, shape: Table, node: Node, path: _Path) -> object:
        if not isinstance(node, MapNode):
            return self._not_a_mapping(node, path)
        table = {
            key: self.convert(shape.inner, entry.value, (*path, key))
            for key, entry in node.entries.items()
        }
        return self._within(shape.limits, table, table.values(), node, path)

    def _components(self, shape: Components, node: Node, path: _Path) -> object:
        null = isinstance(node, ScalarNode) and Value(node.text, node.plain, node.text).null
        if null or (isinstance(node, MapNode) and not node.entries):
            return self._problem(path, node, shape.absent)
        if not isinstance(node, MapNode):
            return self._not_a_mapping(node, path, "write a name and below it the kind")
        components = {}
        for name, entry in node.entries.items():
            here = (*path, name)
            if not re.fullmatch(NAME, name):
                message = f"{shown(name)} cannot be the name of a {shape.role}"
                hint = "a name starts with a-z and has up to 63 of a-z, 0-9, _ and -"
                self._problem(here, entry, message, hint)
            components[name] = self._component(shape.role, name, entry, here)
        self._collisions(components, node, path)
        return components

    def _collisions(self, components: dict[str, object], node: MapNode, path: _Path) -> None:
        """Report resources that two components use although only one can: see ``Exclusive``."""
        owner: dict[str, str] = {}
        for name, component in components.items():
            for resource in self._exclusive(component):
                if owner.setdefault(resource, name) != name:
                    message = f"{owner[resource]} already uses {resource}"
                    hint = "only one component can use it: change one of the two"
                    self._problem((*path, name), node.entries[name], message, hint)

    def _exclusive(self, component: object) -> Iterable[str]:
        options = component.options if isinstance(component, Component) else None
        if isinstance(options, Exclusive):
            yield from options.exclusive()
        if isinstance(options, ExclusiveOnNode):
            yield from options.exclusive_on(self._top.get("node") or socket.gethostname())

    def _component(self, role: str, name: str, entry: Entry, path: _Path) -> object:
        node = entry.value
        kinds = list(self._kinds.names(role))
        listed = f"the kinds are {', '.join(kinds)}"
        if not isinstance(node, MapNode):
            return self._not_a_mapping(node, path, f"write {{kind: ...}}; {listed}")
        if "kind" not in node.entries:
            hint = f'write "kind: {name}"' if name in kinds else listed
            return self._problem(path, entry, 'the key "kind" is missing', hint)
        kind = self.convert(_KIND, node.entries["kind"].value, (*path, "kind"))
        if not isinstance(kind, str):
            return _FAILED
        if kind not in kinds:
            value = cast("ScalarNode", node.entries["kind"].value)
            hint = f"{did_you_mean(kind, kinds)} {listed}".lstrip()
            message = f"unknown {role} kind {shown(value.text)}"
            return self._problem((*path, "kind"), value, message, hint)
        shape = record(self._kinds.options(role, kind))
        options = self._record(shape, node, path, besides=("kind",))
        if not isinstance(options, msgspec.Struct):
            return _FAILED
        return Component(cast('Literal["source", "sink"]', role), name, kind, options)

    def _record(
        self, shape: Record, node: Node, path: _Path, besides: tuple[str, ...] = ()
    ) -> object:
        if not isinstance(node, MapNode):
            return self._not_a_mapping(node, path)
        fields = {field.key: field for field in shape.fields}
        before = len(self.problems)
        for key, entry in node.entries.items():
            if key not in fields and key not in besides:
                self._unknown(key, entry, path, [*besides, *fields])
        values: dict[str, object] = {}
        for key, field in fields.items():
            if key in node.entries:
                value = self.convert(field.shape, node.entries[key].value, (*path, key))
                values[field.name] = value
                if not path and isinstance(value, str):
                    self._top[field.name] = value
            elif field.required:
                self._missing(field, node, path)
        if len(self.problems) > before or any(v is _FAILED for v in values.values()):
            return _FAILED
        return self._build(shape, values, node, path)

    def _build(
        self, shape: Record, values: dict[str, object], node: MapNode, path: _Path
    ) -> object:
        try:
            struct = shape.type(**values)
        except ValueError as error:  # from the __post_init__ of the options
            return self._problem(path, node, " ".join(str(error).split()))
        check = getattr(struct, "problems", None)
        if not callable(check):  # the struct may have an option with this name
            return struct
        result: object = struct
        keys = {field.name: field.key for field in shape.fields}
        for name, message in cast("Iterable[tuple[str | tuple[str, ...], str]]", check()):
            first, *below = (name,) if isinstance(name, str) else name
            steps = (keys.get(first, first), *below) if first else ()
            text = " ".join(message.split())
            result = self._problem((*path, *steps), _deepest(node, steps), text)
        return result

    def _unknown(self, key: str, entry: Entry, path: _Path, known: list[str]) -> None:
        # Guessing takes time, and only the first problems are listed.
        names = known if len(self.problems) < MAX_PROBLEMS else []
        hint = did_you_mean(key, names, f"the keys are {', '.join(known)}")
        self._problem((*path, key), entry, "unknown key", hint)

    def _missing(self, field: Field, node: MapNode, path: _Path) -> None:
        if isinstance(field.shape, Components):
            self._problem((*path, field.key), node, field.shape.absent)
        else:
            self._problem((*path, field.key), node, "this key is missing", field.doc)

    def _not_a_mapping(self, node: Node, path: _Path, hint: str = "") -> _Failed:
        return self._problem(path, node, f"expected a mapping, found {_described(node)}", hint)

    def _within(
        self, limits: Limits, value: object, members: Iterable[object], node: Node, path: _Path
    ) -> object:
        if any(member is _FAILED for member in members):
            return _FAILED
        result = value
        for reason, hint in limits.broken(value):
            noun = "the list" if isinstance(node, ListNode) else "the mapping"
            result = self._problem(path, node, f"{noun} {reason}", hint)
        return result

    def _value(self, node: ScalarNode, path: _Path) -> Value | None:
        if self._environment is None:
            return Value(node.text, node.plain, node.text)
        try:
            return Value(self._environment.expand(node.text), node.plain, node.text)
        except ExpansionError as error:
            for message, hint in error.faults:
                self._problem(path, node, message, hint)
            return None

    def _problem(self, path: _Path, place: Node | Entry, message: str, hint: str = "") -> _Failed:
        self.problems.append(Problem(join_path(path), message, hint, place.line, place.column))
        return _FAILED


_KIND: Final = Scalar(str, Limits(min_length=1))


def _deepest(node: Node, steps: tuple[str, ...]) -> Node:
    """Return the value at the end of the steps, or the last value on the way that exists."""
    for step in steps:
        if not isinstance(node, MapNode) or step not in node.entries:
            break
        node = node.entries[step].value
    return node


def _described(node: Node) -> str:
    """Return a description of a value that has the wrong type, for a message."""
    if isinstance(node, ScalarNode):
        return Value(node.text, node.plain, node.text).describe()
    return "a list" if isinstance(node, ListNode) else "a mapping"
