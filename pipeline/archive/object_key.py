"""Keys of the archive's objects.

    v1/nodes/CLUSTER/NODE/DAY/LEDGER-FIRST-LAST-DIGEST.parquet   raw: rows of one ledger and day
    v1/clusters/CLUSTER/DAY/COUNT-DIGEST.parquet                 compacted: COUNT raw objects

Names are percent-encoded, so that a name is always exactly one part of a key.
"""

import hashlib
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import date
from typing import Final
from urllib.parse import quote, unquote

NODES: Final = "v1/nodes"
"""Prefix of the raw objects, without the slash that follows."""

CLUSTERS: Final = "v1/clusters"
"""Prefix of the compacted objects, without the slash that follows."""

MAX_ROWS: Final = 20_000
"""Maximum number of rows in a raw object."""

LONGEST_NAME: Final = 253
"""Maximum number of characters of the name of a cluster or a node."""

_DIGITS: Final = 16
_RAW: Final = re.compile(
    rf"{NODES}/(?P<cluster>[^/]+)/(?P<node>[^/]+)/(?P<day>\d{{4}}-\d\d-\d\d)/"
    rf"(?P<ledger>[0-9a-f]{{16}})-(?P<first>\d{{12}})-(?P<last>\d{{12}})-"
    rf"(?P<digest>[0-9a-f]{{{_DIGITS}}})\.parquet",
    re.ASCII,
)
_COMPACTED: Final = re.compile(
    rf"{CLUSTERS}/(?P<cluster>[^/]+)/(?P<day>\d{{4}}-\d\d-\d\d)/"
    rf"(?P<count>\d{{9}})-(?P<digest>[0-9a-f]{{{_DIGITS}}})\.parquet",
    re.ASCII,
)


@dataclass(frozen=True, slots=True, order=True)
class RawKey:
    """Key of a raw object, which one node wrote.

    Attributes:
        cluster: name of the cluster.
        node: name of the node.
        day: UTC day of all its rows.
        ledger: id of the ledger, 16 hexadecimal digits.
        first: serial of the first row.
        last: serial of the last row. All serials in between are in the object.
        digest: digest of the rows.
    """

    cluster: str
    node: str
    day: date
    ledger: str
    first: int
    last: int
    digest: str

    def __str__(self) -> str:
        """Return the key as it is in the store."""
        name = f"{self.ledger}-{self.first:012}-{self.last:012}-{self.digest}.parquet"
        return f"{NODES}/{encoded(self.cluster)}/{encoded(self.node)}/{self.day}/{name}"


@dataclass(frozen=True, slots=True, order=True)
class CompactedKey:
    """Key of a compacted object: all rows of a set of raw objects of one cluster and day.

    Attributes:
        cluster: name of the cluster.
        day: UTC day of all its rows.
        count: number of raw keys in its set. A larger set has a key that sorts later, so that a
            listing in order never misses both an object and the one that replaces it.
        digest: digest of the raw keys.
    """

    cluster: str
    day: date
    count: int
    digest: str

    @classmethod
    def of(cls, cluster: str, day: date, replaces: Collection[str]) -> "CompactedKey":
        """Return the key of the object that contains these raw objects.

        Args:
            cluster: name of the cluster.
            day: UTC day of all rows.
            replaces: keys of the raw objects, each once.
        """
        return cls(cluster, day, len(replaces), digest(key.encode() for key in sorted(replaces)))

    def __str__(self) -> str:
        """Return the key as it is in the store."""
        folder = f"{CLUSTERS}/{encoded(self.cluster)}/{self.day}"
        return f"{folder}/{self.count:09}-{self.digest}.parquet"


def parse(key: str) -> RawKey | CompactedKey | None:
    """Return what a key means; None if it is not exactly a key that podgpu writes."""
    found: RawKey | CompactedKey
    try:
        if match := _RAW.fullmatch(key):
            found = RawKey(
                unquote(match["cluster"], errors="strict"),
                unquote(match["node"], errors="strict"),
                date.fromisoformat(match["day"]),
                match["ledger"],
                int(match["first"]),
                int(match["last"]),
                match["digest"],
            )
        elif match := _COMPACTED.fullmatch(key):
            found = CompactedKey(
                unquote(match["cluster"], errors="strict"),
                date.fromisoformat(match["day"]),
                int(match["count"]),
                match["digest"],
            )
        else:
            return None
        valid = str(found) == key
    except ValueError:  # a day that does not exist, bytes that are no UTF-8, a name too long
        return None
    if isinstance(found, RawKey):
        valid = valid and 1 <= found.first <= found.last
    return found if valid else None


def parse_raw(key: str) -> RawKey:
    """Return the key of a raw object.

    Raises:
        ValueError: it is another key.
    """
    if isinstance(found := parse(key), RawKey):
        return found
    raise ValueError(f"{key} is not the key of a raw object")


def parse_compacted(key: str) -> CompactedKey:
    """Return the key of a compacted object.

    Raises:
        ValueError: it is another key.
    """
    if isinstance(found := parse(key), CompactedKey):
        return found
    raise ValueError(f"{key} is not the key of a compacted object")


def encoded(name: str) -> str:
    """Return a name of a cluster or a node as one part of a key.

    Letters, digits, `-`, `_`, and dots within the name stay; all else is percent-encoded as UTF-8.

    Raises:
        ValueError: the name is empty, longer than `LONGEST_NAME`, or no Unicode text.
    """
    if not 0 < len(name) <= LONGEST_NAME:
        raise ValueError(f"the name {name[:40]!r} does not have 1 to {LONGEST_NAME} characters")
    text = quote(name, safe="").replace("~", "%7E")
    # "." and ".." are folders, and stores treat a dot at the end in different ways.
    return text if text.strip(".") == text else text.replace(".", "%2E")


def digest(lines: Iterable[bytes]) -> str:
    """Return the digest of lines: of canonical rows, or of sorted keys."""
    found = hashlib.sha256()
    for line in lines:
        found.update(line)
        found.update(b"\n")
    return found.hexdigest()[:_DIGITS]
