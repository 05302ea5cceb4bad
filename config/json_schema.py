"""A JSON Schema of the configuration file, for editors that check and complete YAML.

The schema accepts every file that ``parse`` accepts. It also accepts some files that ``parse``
refuses: it does not check bounds of values with units, or combinations of options.
"""

import pathlib
from typing import Any, Final

from config.converter import NAME, Kinds
from config.option_docs import jsonable
from config.schema import Config
from config.type_shapes import (
    Choice,
    Components,
    Items,
    Limits,
    Maybe,
    Record,
    Scalar,
    Shape,
    Table,
    record,
)
from config.value_types import NUMBER, ByteSize, Duration, ListenAddress

_PLACEHOLDER: Final = {"$ref": "#/$defs/placeholder"}
# For a text option, YAML such as `1.10` is valid, which an editor reads as a number.
_TEXT: Final = ["string", "number", "boolean"]
_DURATION: Final = (
    "^(?=[0-9])" + "".join(rf"(?:{NUMBER}{unit}(?![a-z]))?" for unit in Duration.units) + "$"
)
_SIZE: Final = rf"^{NUMBER}(?:{'|'.join(ByteSize.units)})$"
_ADDRESS: Final = r"^(?:(?:\[[0-9A-Za-z:.%_-]+\]|[A-Za-z0-9.-]*):[0-9]{1,5}|systemd)$"
_UNITS: Final[dict[type, tuple[str, str, str]]] = {
    Duration: ("duration", _DURATION, f"A duration with its unit: {Duration.example}."),
    ByteSize: ("size", _SIZE, f"A number of bytes with its unit: {ByteSize.example}."),
    ListenAddress: (
        "address",
        _ADDRESS,
        "An optional host and a port: :9400. With systemd, its socket unit.",
    ),
}
_ROLES: Final = ("source", "sink")


def json_schema(kinds: Kinds) -> dict[str, object]:
    """Return the schema, draft 2020-12, for the components of ``kinds``.

    Raises:
        TypeError: An options class has a field with a type that options cannot have.
    """
    definitions: dict[str, Any] = {
        "placeholder": {
            "description": "A value with environment variables: ${NAME} or ${NAME:-default}.",
            "type": "string",
            "pattern": r"\$\{",
        }
    }
    for name, pattern, doc in _UNITS.values():
        of_unit = {"type": "string", "pattern": pattern}
        definitions[name] = {"description": doc, "anyOf": [of_unit, _PLACEHOLDER]}
    for role in _ROLES:
        names = list(kinds.names(role))
        definitions[role] = _component(role, names)
        for kind in names:
            definitions[f"{role}.{kind}"] = _options(record(kinds.options(role, kind)), kind)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "podgpu configuration",
        **_of(record(Config)),
        "$defs": definitions,
    }


def _component(role: str, names: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["kind"],
        "properties": {
            "kind": {
                "description": f"The kind of the {role}.",
                "anyOf": [{"enum": names}, _PLACEHOLDER],
            }
        },
        "allOf": [
            {
                "if": {"properties": {"kind": {"const": name}}, "required": ["kind"]},
                "then": {"$ref": f"#/$defs/{role}.{name}"},
            }
            for name in names
        ],
    }


def _options(shape: Record, kind: str) -> dict[str, Any]:
    schema = _of(shape)
    schema["properties"] = {"kind": {"const": kind}, **schema["properties"]}
    doc = " ".join((shape.type.__doc__ or "").split())
    return {"description": doc, **schema} if doc else schema


def _of(shape: Shape) -> dict[str, Any]:
    match shape:
        case Scalar() | Choice():
            return _scalar(shape)
        case Maybe():
            single = isinstance(shape.inner, Scalar | Choice)  # these accept a placeholder already
            also = [{"type": "null"}] if single else [{"type": "null"}, _PLACEHOLDER]
            return {"anyOf": [_of(shape.inner), *also]}
        case Items():
            sizes = _sizes(shape.limits, "Items")
            return {"type": "array", "items": _of(shape.inner), **sizes}
        case Table():
            sizes = _sizes(shape.limits, "Properties")
            return {"type": "object", "additionalProperties": _of(shape.inner), **sizes}
        case Components():
            return {
                "type": "object",
                "minProperties": 1,
                "propertyNames": {"pattern": f"^{NAME}$"},
                "additionalProperties": {"$ref": f"#/$defs/{shape.role}"},
            }
        case Record():
            return _record(shape)


def _record(shape: Record) -> dict[str, Any]:
    properties = {}
    for field in shape.fields:
        schema = _of(field.shape)
        if field.doc:
            schema = {"description": field.doc, **schema}
        if not field.required:
            schema["default"] = jsonable(field.default)
        properties[field.key] = schema
    required = [field.key for field in shape.fields if field.required]
    return {
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def _scalar(shape: Scalar | Choice) -> dict[str, Any]:
    if isinstance(shape, Choice):
        return {"anyOf": [{"enum": list(shape.values)}, _PLACEHOLDER]}
    if shape.type is str or shape.type is pathlib.Path:
        schema = {"type": _TEXT, **_sizes(shape.limits, "Length")}
        schema |= _present({"pattern": shape.limits.pattern})
        if shape.type is pathlib.Path:
            schema["minLength"] = 1
        return schema if set(schema) == {"type"} else {"anyOf": [schema, _PLACEHOLDER]}
    if shape.type in (int, float, bool):
        noun = {int: "integer", float: "number", bool: "boolean"}[shape.type]
        bounds = _present({"minimum": shape.limits.ge, "maximum": shape.limits.le})
        return {"anyOf": [{"type": noun, **bounds}, _PLACEHOLDER]}
    return {"$ref": f"#/$defs/{_UNITS[shape.type][0]}"}


def _sizes(limits: Limits, noun: str) -> dict[str, Any]:
    return _present({f"min{noun}": limits.min_length, f"max{noun}": limits.max_length})


def _present(keywords: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in keywords.items() if value is not None}
