"""Describes the options of a component as rows, for the command line and the documentation."""

import json
import pathlib
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from config.type_shapes import (
    Choice,
    Components,
    Field,
    Items,
    Maybe,
    Record,
    Scalar,
    Shape,
    Table,
    record,
)
from config.value_types import ByteSize, Duration, ListenAddress

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAMES: Final[dict[type, str]] = {
    str: "text",
    bool: "boolean",
    int: "integer",
    float: "number",
    Duration: "duration",
    ByteSize: "size",
    ListenAddress: "address",
    pathlib.Path: "path",
}


class Option(NamedTuple):
    """One option.

    Attributes:
        name: The key. ``tls.cert`` is a key of a nested mapping; ``rules[].name`` and
            ``pools.*.size`` are keys of mappings in a list and in a mapping.
        type: The type with its bounds, such as ``duration, at least 100ms``.
        default: The default in YAML, or ``required``.
        doc: The description; may be empty.
    """

    name: str
    type: str
    default: str
    doc: str


def describe(options: type[msgspec.Struct]) -> list[Option]:
    """Return a row for each option, followed by rows for the keys of a nested mapping.

    Raises:
        TypeError: A field has a type that options cannot have.
    """
    return list(_rows(record(options), ""))


def _rows(shape: Record, prefix: str) -> "Iterator[Option]":
    for field in shape.fields:
        name = prefix + field.key
        default = "required" if field.required else _default(field)
        yield Option(name, type_text(field.shape), default, field.doc)
        inner, suffix = field.shape, ""
        while isinstance(inner, Items | Table | Maybe):
            suffix += {Items: "[]", Table: ".*", Maybe: ""}[type(inner)]
            inner = inner.inner
        if isinstance(inner, Record):
            yield from _rows(inner, f"{name}{suffix}.")


def type_text(shape: Shape) -> str:
    """Return the name of a type with its bounds, for users."""
    match shape:
        case Scalar():
            return _NAMES[shape.type] + _bounds(shape)
        case Choice():
            return " | ".join(shape.values)
        case Maybe():
            return f"{type_text(shape.inner)} | null"
        case Items():
            return f"list of {type_text(shape.inner)}"
        case Table():
            return f"mapping of {type_text(shape.inner)}"
        case Components():
            return f"mapping of {shape.role}s"
        case Record():
            return "mapping"


def _bounds(shape: Scalar) -> str:
    words = {"at least": shape.limits.ge, "at most": shape.limits.le}
    return "".join(f", {word} {bound}" for word, bound in words.items() if bound is not None)


def _default(field: Field) -> str:
    value = jsonable(field.default)
    if isinstance(field.shape, Record) and isinstance(value, dict):
        return "{}"  # the following rows have the defaults of its keys
    plain = isinstance(value, str) and value and value.replace("-", "").isalnum()
    return str(value) if plain else json.dumps(value, ensure_ascii=False)


def jsonable(value: object) -> object:
    """Return a default value as it is written in the file, with JSON types only."""
    if isinstance(value, Duration | ByteSize | ListenAddress | pathlib.Path):
        return str(value)
    if isinstance(value, msgspec.Struct):
        fields = record(type(value)).fields
        return {field.key: jsonable(getattr(value, field.name)) for field in fields}
    if isinstance(value, tuple | list):
        return [jsonable(item) for item in value]
    if isinstance(value, dict):
        return {key: jsonable(item) for key, item in value.items()}
    return value
