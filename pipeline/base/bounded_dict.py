"""Dictionaries with a limit, which keep the entries that were set last."""

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def set_last(table: dict[K, V], key: K, value: V, limit: int) -> None:
    """Set an entry and move it to the end; remove the first entry if there are too many."""
    table.pop(key, None)
    table[key] = value
    if len(table) > limit:
        del table[next(iter(table))]
