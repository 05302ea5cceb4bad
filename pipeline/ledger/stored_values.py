"""Checks of values that were read from the ledger: SQLite does not enforce the types of columns."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from pipeline.ledger.schema import invalid_value_error
from pipeline.model import StringPairs


@contextmanager
def as_database_error() -> Iterator[None]:
    """Convert errors for values that podgpu does not write to a database error.

    Raises:
        sqlite3.DatabaseError: a value in the file is invalid.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise invalid_value_error(repr(error)) from error


_TYPES: Final = MappingProxyType({"t": str, "n": int, "o": int})


def typed(row: Sequence[Any], kinds: str) -> Sequence[Any]:
    """Return a row after checking the types of its values, which SQLite does not enforce.

    Args:
        row: the row as it was read.
        kinds: one letter for each value: `t` text, `n` integer, `o` integer or NULL.

    Raises:
        TypeError: a value has another type.
    """
    for value, kind in zip(row, kinds, strict=True):
        if not (isinstance(value, _TYPES[kind]) or (kind == "o" and value is None)):
            raise TypeError(f"a value of type {type(value).__name__}")
    return row


@lru_cache(maxsize=4096)
def pairs(labels: str) -> StringPairs:
    """Return labels, which the ledger stores as a JSON object, as sorted pairs."""
    return tuple(sorted((str(name), str(value)) for name, value in json.loads(labels).items()))
