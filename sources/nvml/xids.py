"""XID errors counted: podgpu's own record, which outlives the driver's reloads."""

from collections.abc import Container, Iterable
from typing import Final

from pipeline.model import NS, Attrs, Instant, Reading

FIELDS: Final = ("xid_last", "xid_errors", "xid_last_seen_timestamp_seconds")


class XidCounts:
    """Counts by GPU and code since podgpu started.

    Args:
        codes: those that start at 0.
    """

    def __init__(self, codes: Iterable[int]) -> None:
        self._codes = tuple(sorted(set(codes)))
        self._counts: dict[str, dict[int, int]] = {}
        self._seen: dict[str, dict[int, Instant]] = {}
        self._last: dict[str, int] = {}

    def begin(self, uuid: str) -> None:
        """Note that the GPU is watched from now on: only now does a 0 mean no error."""
        counts = self._counts.setdefault(uuid, {})
        for code in self._codes:
            counts.setdefault(code, 0)
        self._last.setdefault(uuid, 0)

    def add(self, uuid: str, code: int, at: Instant) -> None:
        """Count one error."""
        counts = self._counts.setdefault(uuid, {})
        counts[code] = counts.get(code, 0) + 1
        self._seen.setdefault(uuid, {})[code] = at
        self._last[uuid] = code

    def readings(
        self, uuids: Iterable[str], fields: Container[str], at: Instant, good: int
    ) -> list[Reading]:
        """Return everything that is known of these GPUs, as read at this moment."""
        last, errors, seen_at = (field in fields for field in FIELDS)
        made: list[Reading] = []
        for uuid in uuids:
            counts = self._counts.get(uuid)
            if counts is None:
                continue
            if last:
                made.append(Reading(uuid, "xid_last", (), self._last[uuid], None, at, good))
            if errors:
                made += [
                    Reading(uuid, "xid_errors", _attrs(code), count, None, at, good)
                    for code, count in counts.items()
                ]
            if seen_at:
                made += [
                    Reading(uuid, FIELDS[2], _attrs(code), seen.wall_ns / NS, None, at, good)
                    for code, seen in self._seen.get(uuid, {}).items()
                ]
        return made


_KEPT: dict[int, Attrs] = {}


def _attrs(code: int) -> Attrs:
    attrs = _KEPT.get(code)
    if attrs is None:
        attrs = _KEPT[code] = (("xid", str(code)),)
    return attrs
