"""Limits the size of a dictionary: the entries that were set last are kept."""

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def set_last(table: dict[K, V], key: K, value: V, limit: int) -> None:
    """Set an entry and move it to the end; remove the first one if there are more than `limit`."""
    table.pop(key, None)
    table[key] = value
    if len(table) > limit:
        del table[next(iter(table))]
