"""Reading JSON that may be of any shape: what isn't there, or is something else, reads as empty."""

from typing import Any


def as_dict(value: object) -> dict[str, Any]:
    """Return an object's members; none if it is no object."""
    return value if isinstance(value, dict) else {}


def as_dicts(value: object) -> list[dict[str, Any]]:
    """Return the objects of a list; none if it is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def as_text(value: object) -> str:
    """Return a text; an empty one if it is no text."""
    return value if isinstance(value, str) else ""


def as_int(value: object) -> int | None:
    """Return a whole number; None if it is none. A boolean is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None
