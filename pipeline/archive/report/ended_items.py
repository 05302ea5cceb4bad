"""Counts and lists the holdings and gaps of an archive that overlap a span of time, in DuckDB.

The row with the highest serial is valid. A row is in the objects of the day of its end; if that day
changes, the row of the earlier day is withdrawn. So each day can be read alone.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

from pipeline.archive.database import Database
from pipeline.archive.report.row_sources import RowSources
from pipeline.ledger.queries import HoldingRecord
from pipeline.model import PartialRef
from pipeline.model.ledger_usage import ContainerIdentity

_VALID: Final = """
SELECT cluster, node, ledger, {item}, arg_max(
    {{{fields}}}, serial
) AS valid
FROM ({rows}) WHERE row = '{item}' GROUP BY ALL
"""
_FIELDS: Final = {
    "holding": (
        "device", "namespace", "pod", "container", "pod_uid", "start_ns", "end_ns", "source",
        "evidence", "counted_ns", "gap_ns", "held_ns", "busy_ns", "energy_mj", "memory_peak_bytes",
        "memory_mean_bytes", "busy_mean_ppm", "busy_peak_ppm", "xids", "contested_ns",
        "switching_ns",
    ),
    "gap": ("device", "start_ns", "end_ns", "reason"),
}  # fmt: skip
_OVERLAPS: Final = "valid.end_ns > ? AND valid.start_ns < ?"

_GAPS_TABLE: Final = """
CREATE TABLE gaps (device INTEGER, cluster VARCHAR, node VARCHAR, reason VARCHAR,
    start_ns BIGINT, end_ns BIGINT)
"""
_GAPS: Final = f"""
INSERT INTO gaps
SELECT devices.id, cluster, node, valid.reason, valid.start_ns, valid.end_ns
FROM ({{valid}}) AS found
JOIN devices USING (cluster, node)
WHERE devices.device = valid.device AND {_OVERLAPS}
"""  # noqa: S608
# Overlapping gaps of several devices of a node count once.
_GAP_COUNTS: Final = """
SELECT reason, count(*) FROM (
    SELECT reason, start_ns, max(end_ns) OVER (
        PARTITION BY cluster, node, reason ORDER BY start_ns
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS earlier_end_ns
    FROM gaps WHERE list_contains(?, device) OR ? IS NULL
)
WHERE earlier_end_ns IS NULL OR start_ns > earlier_end_ns
GROUP BY reason ORDER BY reason <> 'down', reason
"""

_NAMES: Final = "device, namespace, pod, container, pod_uid, start_ns, end_ns"
_OF_HOLDING: Final = "cluster, node, ledger, holding"
# Few holdings have several rows. To find these by a hash takes a third of the time.
_REPLACED: Final = f"""
CREATE OR REPLACE TEMP TABLE replaced AS
SELECT hash({_OF_HOLDING}) AS own_hash FROM ({{rows}}) WHERE row = 'holding'
GROUP BY own_hash HAVING count(*) > 1
"""  # noqa: S608
_LATEST: Final = f"""
SELECT {{columns}} FROM (
    SELECT cluster, node, ledger, {_NAMES} FROM ({{rows}})
    WHERE row = 'holding' AND hash({_OF_HOLDING}) NOT IN (FROM replaced)
    UNION ALL
    SELECT cluster, node, ledger, {_NAMES} FROM ({{rows}})
    WHERE row = 'holding' AND hash({_OF_HOLDING}) IN (FROM replaced)
    QUALIFY row_number() OVER (PARTITION BY {_OF_HOLDING} ORDER BY serial DESC) = 1
)
WHERE end_ns > ? AND start_ns < ?
"""  # noqa: S608
_ONLY: Final = """
SELECT {columns} FROM ({rows}) WHERE row = 'holding' AND end_ns > ? AND start_ns < ?
"""
_ENDED: Final = "CREATE OR REPLACE TEMP TABLE ended AS "
_ENDED_COLUMNS: Final = "cluster, node, ledger, device, namespace, pod, container, pod_uid"

_ORDER: Final = "start_ns DESC, cluster, node, device, pod_uid, namespace, pod, container, holding"
_LIST_TABLE: Final = """
CREATE OR REPLACE TABLE listed AS
SELECT cluster, node, holding, valid.*, NULL::VARCHAR AS owner_kind, NULL::VARCHAR AS owner_name,
    NULL::VARCHAR AS labels
FROM ({valid}) WHERE false
"""
_LIST_DAY: Final = f"""
INSERT INTO listed
WITH facts AS (
    SELECT
        cluster, node, ledger, namespace, pod, container, pod_uid,
        arg_max(owner_kind, serial) AS owner_kind, arg_max(owner_name, serial) AS owner_name,
        arg_max(labels, serial) AS labels
    FROM ({{rows}}) WHERE row = 'container' GROUP BY ALL
)
SELECT * FROM (
SELECT found.cluster, found.node, found.holding, valid.*, owner_kind, owner_name, labels
FROM ({{valid}}) AS found
LEFT JOIN facts ON facts.cluster = found.cluster AND facts.node = found.node
    AND facts.ledger = found.ledger AND facts.namespace = valid.namespace
    AND facts.pod = valid.pod AND facts.container = valid.container
    AND facts.pod_uid = valid.pod_uid
WHERE {_OVERLAPS}
    AND EXISTS (
        SELECT 1 FROM devices WHERE devices.cluster = found.cluster AND devices.node = found.node
            AND devices.device = valid.device AND list_contains(?, devices.id)
    )
)
ORDER BY {_ORDER} LIMIT ?
"""  # noqa: S608
_KEEP: Final = f"""
CREATE OR REPLACE TABLE listed AS SELECT * FROM listed ORDER BY {_ORDER} LIMIT ?
"""  # noqa: S608
_LISTED: Final = f"SELECT * FROM listed ORDER BY {_ORDER}"  # noqa: S608


def find_ended(database: Database, rows: str, start_ns: int, end_ns: int) -> None:
    """Make the table `ended` of a day: the names of the holdings that overlap a span.

    Args:
        database: a database.
        rows: the SQL query of the day's rows.
        start_ns: start of the span, in nanoseconds of Unix time.
        end_ns: end of the span, in nanoseconds of Unix time.
    """
    database.execute(_REPLACED.format(rows=rows))
    some = database.execute("SELECT EXISTS (FROM replaced)")[0][0]
    query = (_LATEST if some else _ONLY).format(rows=rows, columns=_ENDED_COLUMNS)
    database.execute(_ENDED + query, (start_ns, end_ns))


def find_gaps(sources: RowSources, start_ns: int, end_ns: int) -> None:
    """Make the table `gaps`, after `usage_sums.sum_usage`.

    Args:
        sources: the rows.
        start_ns: start of the span, in nanoseconds of Unix time.
        end_ns: end of the span, in nanoseconds of Unix time.

    Raises:
        TransientError: a file cannot be read.
        PermanentError: a file is damaged, or the memory limit is too low.
    """
    database = sources.database
    database.execute(_GAPS_TABLE)
    for rows in sources.days.values():
        database.execute(_GAPS.format(valid=_valid("gap", rows)), (start_ns, end_ns))


def gap_counts(database: Database, devices: list[int] | None = None) -> tuple[tuple[str, int], ...]:
    """Return how often each reason for gaps occurred: `down` first.

    Args:
        database: a database after `find_gaps`.
        devices: numbers of the devices; None for all.
    """
    return tuple(database.execute(_GAP_COUNTS, (devices, devices)))


def list_holdings(
    sources: RowSources, start_ns: int, end_ns: int, limit: int, devices: Sequence[int]
) -> list[HoldingRecord]:
    """Return the ended holdings that overlap a span of time, the latest first.

    Args:
        sources: the rows.
        start_ns: start of the span, in nanoseconds of Unix time.
        end_ns: end of the span, in nanoseconds of Unix time.
        limit: maximum number of holdings.
        devices: numbers of the devices, after `usage_sums.sum_usage`.

    Raises:
        TransientError: a file cannot be read.
        PermanentError: a file is damaged, or the memory limit is too low.
    """
    database, numbers = sources.database, list(devices)
    for number, rows in enumerate(sources.days.values()):
        valid = _valid("holding", rows)
        if not number:
            database.execute(_LIST_TABLE.format(valid=valid))
        values = (start_ns, end_ns, numbers, limit)
        database.execute(_LIST_DAY.format(valid=valid, rows=rows), values)
        database.execute(_KEEP, (limit,))
    found = database.execute(_LISTED) if sources.days else []
    return list(map(_record, found))


def _valid(item: str, rows: str) -> str:
    fields = ", ".join(f"'{name}': {name}" for name in _FIELDS[item])
    return _VALID.format(item=item, fields=fields, rows=rows)


def _record(row: tuple[Any, ...]) -> HoldingRecord:
    cluster, node, _, *values, owner_kind, owner_name, labels = row
    found: dict[str, Any] = dict(zip(_FIELDS["holding"], values, strict=True))
    names = [found.pop(name) for name in ("namespace", "pod", "container", "pod_uid")]
    identity = ContainerIdentity(
        PartialRef(*names),
        owner_kind or "",
        owner_name or "",
        tuple(sorted(json.loads(labels or "{}").items())),
    )
    xids = json.loads(found.pop("xids") or "{}")
    return HoldingRecord(
        **found,
        container=identity,
        until_ns=found["end_ns"],
        xids=tuple(sorted((int(code), count) for code, count in xids.items())),
        node=node,
        cluster=cluster,
    )
