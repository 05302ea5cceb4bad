"""Reads JSON of any shape: a value that is missing or has another type is read as empty."""

from collections.abc import Mapping
from typing import Any

import orjson


def as_dict(value: object) -> dict[str, Any]:
    """Return a JSON object; an empty one if the value is not an object."""
    return value if isinstance(value, dict) else {}


def as_dicts(value: object) -> list[dict[str, Any]]:
    """Return the JSON objects in a list; an empty list if the value is not a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def as_text(value: object) -> str:
    """Return a string; an empty one if the value is not a string."""
    return value if isinstance(value, str) else ""


def as_int(value: object) -> int | None:
    """Return an integer; None if the value is not an integer. A boolean is not an integer."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def controller_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the owner reference of an object's controller; empty if there is no controller."""
    owners = as_dicts(metadata.get("ownerReferences"))
    return next((each for each in owners if each.get("controller") is True), {})


def parsed_object(text: bytes | str) -> dict[str, Any]:
    """Return the object in a JSON text; an empty one if the text is not a JSON object."""
    try:
        return as_dict(orjson.loads(text))
    except orjson.JSONDecodeError:
        return {}
