"""What a compacted object contains: its raw keys, and the serials of its rows by ledger."""

import base64
import binascii
import json
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from pipeline.archive.object_key import CompactedKey, parse_raw
from pipeline.base.errors import PermanentError

REPLACES_KEY: Final = "podgpu.replaces"
"""Key of the metadata with the raw keys: a JSON list, compressed with zlib, in base64."""

SERIALS_KEY: Final = "podgpu.serials"
"""Key of the metadata with the serials: JSON {node: {ledger: [[first, last], ...]}}, as above."""

_MOST_BYTES: Final = 256 << 20
"""Maximum size of a decompressed value; the keys of 24,000 raw objects have 3 MB."""

Origin: TypeAlias = tuple[str, str, str]
"""Cluster, node, and id of the ledger."""

Range: TypeAlias = tuple[int, int]
"""First and last serial."""


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of one object.

    Attributes:
        replaces: the raw keys whose rows are in the object. A raw object has only its own.
        serials: the serials of the rows by origin, as sorted ranges that do not touch.
    """

    replaces: frozenset[str]
    serials: Mapping[Origin, tuple[Range, ...]]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(last - first + 1 for each in self.serials.values() for first, last in each)


def contents_of_raw(keys: Collection[str]) -> Contents:
    """Return the contents of an object with all rows of these raw objects.

    Raises:
        ValueError: a key is not that of a raw object.
    """
    found: dict[Origin, list[Range]] = {}
    for text in keys:
        key = parse_raw(text)
        found.setdefault((key.cluster, key.node, key.ledger), []).append((key.first, key.last))
    return Contents(frozenset(keys), {o: _joined(ranges) for o, ranges in found.items()})


def joined_contents(parts: Iterable[Contents]) -> Contents:
    """Return the contents of an object with the rows of several objects."""
    replaces: set[str] = set()
    serials: dict[Origin, list[Range]] = {}
    for part in parts:
        replaces |= part.replaces
        for origin, ranges in part.serials.items():
            serials.setdefault(origin, []).extend(ranges)
    return Contents(frozenset(replaces), {o: _joined(ranges) for o, ranges in serials.items()})


def encode_contents(contents: Contents) -> dict[str, str]:
    """Return contents as values of the metadata."""
    serials: dict[str, dict[str, tuple[Range, ...]]] = {}
    for (_, node, ledger), ranges in sorted(contents.serials.items()):
        serials.setdefault(node, {})[ledger] = ranges
    return {REPLACES_KEY: _packed(sorted(contents.replaces)), SERIALS_KEY: _packed(serials)}


def decode_contents(key: CompactedKey, metadata: Mapping[str, str]) -> Contents:
    """Return the contents that the metadata of a compacted object states.

    Raises:
        PermanentError: the metadata is missing or damaged, or does not belong to this key.
    """
    try:
        replaces = frozenset(str(each) for each in _unpacked(metadata[REPLACES_KEY]))
        serials = {
            (key.cluster, str(node), str(ledger)): tuple((int(a), int(b)) for a, b in ranges)
            for node, ledgers in _unpacked(metadata[SERIALS_KEY]).items()
            for ledger, ranges in ledgers.items()
        }
    except (KeyError, ValueError, TypeError, AttributeError, zlib.error, binascii.Error) as error:
        raise PermanentError(
            f"{key} is damaged: its metadata does not list what it contains; restore this object"
        ) from error
    if CompactedKey.of(key.cluster, key.day, replaces) != key:
        raise PermanentError(
            f"{key} is damaged or was renamed: its metadata lists other raw objects; restore it"
        )
    return Contents(replaces, serials)


def _joined(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Return sorted ranges in which those that overlap or touch are one."""
    found: list[Range] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)


def _packed(value: object) -> str:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def _unpacked(text: str) -> dict[str, dict[str, list[list[int]]]]:
    decompress = zlib.decompressobj()
    content = decompress.decompress(base64.b64decode(text, validate=True), _MOST_BYTES)
    if not decompress.eof:
        raise ValueError("the value is cut, or too large")
    found: dict[str, dict[str, list[list[int]]]] = json.loads(content)
    return found
