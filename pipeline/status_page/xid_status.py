"""Build the XID errors of a status document, from the counters that a source reports."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from pipeline.fields.xid_catalogue import XIDS
from pipeline.model import NS, Snapshot, Value
from pipeline.status_page.daemon_state import date
from pipeline.status_page.status_document import XidStatus
from pipeline.status_page.use_format import LARGEST

MOST_XIDS: Final = 16
"""Maximum number of codes of one GPU in a document: the latest. Further ones are only counted."""

_CODE: Final = re.compile("[0-9]{1,9}")
_COUNT: Final = "xid_errors"
_SEEN: Final = "xid_last_seen_timestamp_seconds"
_LATEST_SECONDS: Final = 1 << 32
"""A later time than this, in Unix time, is no time of an error."""


def xids(snapshot: Snapshot) -> Mapping[str, Sequence[XidStatus]]:
    """Return the XID errors by uuid of the device, the latest first."""
    counts: defaultdict[tuple[str, int], dict[str, Value]] = defaultdict(dict)
    for series, reading in zip(snapshot.layout.series, snapshot.readings, strict=True):
        text = dict(series.attrs).get("xid", "") if series.field in {_COUNT, _SEEN} else ""
        if _CODE.fullmatch(text) and 0 < reading.value <= LARGEST:
            uuid = series.attribution.device.uuid
            counts[uuid, int(text)][series.field] = reading.value
    found: defaultdict[str, list[XidStatus]] = defaultdict(list)
    for (uuid, code), values in counts.items():
        found[uuid].append(_xid(code, values))
    for listed in found.values():
        listed.sort(key=lambda one: (-one.last_seen.timestamp() if one.last_seen else 0, one.code))
    return found


def _xid(code: int, values: Mapping[str, Value]) -> XidStatus:
    known, seen = XIDS.get(code), values.get(_SEEN)
    return XidStatus(
        code=code,
        errors=int(values[_COUNT]) if _COUNT in values else None,
        last_seen=date(round(seen * NS)) if seen is not None and seen < _LATEST_SECONDS else None,
        meaning=None if known is None else known.meaning,
        action=None if known is None else known.action,
    )
