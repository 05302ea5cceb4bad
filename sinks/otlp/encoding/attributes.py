"""Build attributes for OpenTelemetry messages: valid, not empty, with unique names."""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final, TypeAlias

from sinks.otlp.messages import common_pb2

Pairs: TypeAlias = tuple[tuple[str, str | int], ...]

MAX_LENGTH: Final = 1024
"""Maximum number of characters of a name or value; names in Kubernetes are shorter."""

INT64: Final = range(-(1 << 63), 1 << 63)


def clean(text: str) -> str:
    """Return a text as valid UTF-8, cut to the maximum length."""
    text = text[:MAX_LENGTH]
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def merged(*groups: Iterable[tuple[str, str | int]]) -> Pairs:
    """Combine groups of attributes: each name once, without empty values.

    If a name occurs again, the first one keeps it. Later ones get a `_` as prefix.
    """
    found: dict[str, str | int] = {}
    for name, value in chain.from_iterable(groups):
        valid = value if isinstance(value, int) and value in INT64 else clean(str(value))
        if valid == "":
            continue
        unique = clean(name) or "_"
        while unique in found:
            unique = f"_{unique}"
        found[unique] = valid
    return tuple(found.items())


def cleaned(texts: Mapping[str, str]) -> dict[str, str]:
    """Return cleaned names and texts, without empty ones."""
    return {clean(name): clean(value) for name, value in texts.items() if name and value}


def key_values(pairs: Iterable[tuple[str, str | int]]) -> list[common_pb2.KeyValue]:
    """Convert attributes to messages."""
    return [common_pb2.KeyValue(key=name, value=_value(value)) for name, value in pairs]


def _value(value: str | int) -> common_pb2.AnyValue:
    if isinstance(value, bool):
        return common_pb2.AnyValue(bool_value=value)
    if isinstance(value, int):
        return common_pb2.AnyValue(int_value=value)
    return common_pb2.AnyValue(string_value=value)
