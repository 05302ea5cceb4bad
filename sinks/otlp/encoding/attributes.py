"""Attributes as OpenTelemetry's messages take them, whatever they are called."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from sinks.otlp.messages import AnyValue, KeyValue

Pairs: TypeAlias = tuple[tuple[str, str | int], ...]

LONGEST: Final = 1024
"""Characters of a name or a value; Kubernetes' names are shorter."""

_INT64: Final = range(-(1 << 63), 1 << 63)


def clean(text: str) -> str:
    """Return a text that is valid UTF-8 and not too long."""
    text = text[:LONGEST]
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def merged(*groups: Iterable[tuple[str, str | int]]) -> Pairs:
    """Return all attributes, each name once and none empty, as they can be sent.

    Of one name in several groups the first is kept; the others go by the name with a `_` before it.
    """
    found: dict[str, str | int] = {}
    for name, value in _pairs(groups):
        shown = clean(name) or "_"
        while shown in found:
            shown = f"_{shown}"
        found[shown] = value
    return tuple(found.items())


def _pairs(groups: Iterable[Iterable[tuple[str, str | int]]]) -> Iterator[tuple[str, str | int]]:
    for group in groups:
        for name, value in group:
            if isinstance(value, int):
                yield name, value if value in _INT64 else str(value)
            elif value:
                yield name, clean(value)


def cleaned(texts: Mapping[str, str]) -> dict[str, str]:
    """Return texts by name, without those that are empty."""
    return {clean(name): clean(value) for name, value in texts.items() if name and value}


def key_values(pairs: Iterable[tuple[str, str | int]]) -> list[KeyValue]:
    """Return attributes as messages."""
    return [KeyValue(key=name, value=_value(value)) for name, value in pairs]


def _value(value: str | int) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    return AnyValue(string_value=value)
