"""Sums the usage of an archive by device and container, day by day, in DuckDB.

A month of 8,000 GPUs has 40 million rows and six million containers. The devices of all days are
found first. Then the usage of each day is summed in temporary tables: by container, or as
`namespace_sums` does it. What remains has only the names that the grouping of the report needs, so
its size depends on the number of groups and devices.

Tables that remain:

- `devices`: each device of each node, with its last known model, profile and index.
- `sums`: amounts and holdings by device, names of containers, and span of equal prices. Names that
  are not needed are NULL. `is_unattributed` marks the usage of no known container.
- `device_sums`: totals by device, span of equal prices, and day.
- `device_hours`: the hours of a day in which a device has counted time.
- `same_uids`: usage by containers whose names or holdings need other days.
"""

from collections.abc import Sequence
from datetime import date
from types import MappingProxyType
from typing import Final, Literal

from pipeline.archive.database import Database
from pipeline.archive.report.ended_items import find_ended
from pipeline.archive.report.namespace_sums import (
    CONTEST,
    CONTEST_MISSING,
    PLACE,
    add_holdings,
    add_places,
    choose_classes,
    make_places,
    merge_days,
    prepare_day,
    sum_day,
)
from pipeline.archive.report.owner_sql import kind_of_owner
from pipeline.archive.report.row_sources import RowSources
from pipeline.archive.row_columns import day_of_moment
from pipeline.ledger.schema import HOUR_NS

Detail = Literal["device", "namespace", "pod", "facts"]
"""Which names of containers `sums` has: none, namespaces, those of pods, or all with facts."""

_WITHOUT_CONTAINERS: Final = ("device", "namespace")
_EPOCH: Final = date(1970, 1, 1)
_FEW_SUMS: Final = 1_000_000
"""Number of rows of `sums` that are not worth a merge of the rows of several days."""

_TABLES: Final = """
CREATE SEQUENCE device_numbers;
CREATE TABLE devices (
    id INTEGER DEFAULT nextval('device_numbers'),
    cluster VARCHAR, node VARCHAR, device VARCHAR,
    gpu VARCHAR, gpu_index INTEGER, model VARCHAR, profile VARCHAR, sample_data VARCHAR
);
CREATE TABLE sums (
    device INTEGER, is_unattributed BOOLEAN, since_hour BIGINT,
    ledger VARCHAR, namespace VARCHAR, pod VARCHAR, container VARCHAR, pod_uid VARCHAR,
    owner_kind VARCHAR, owner_name VARCHAR, labels VARCHAR, facts_serial BIGINT,
    held_ns HUGEINT, busy_ns HUGEINT, idle_ns HUGEINT, energy_mj HUGEINT,
    busy_missing BOOLEAN, energy_missing BOOLEAN, holdings HUGEINT,
    contested_ns HUGEINT, switching_ns HUGEINT, contest_missing BOOLEAN
);
CREATE TABLE ended_elsewhere (
    cluster VARCHAR, node VARCHAR, ledger VARCHAR, device VARCHAR,
    namespace VARCHAR, pod VARCHAR, container VARCHAR, pod_uid VARCHAR
);
CREATE TABLE same_uids (
    cluster VARCHAR, node VARCHAR, ledger VARCHAR, device VARCHAR,
    namespace VARCHAR, pod VARCHAR, container VARCHAR, pod_uid VARCHAR, since_hour BIGINT
);
CREATE TABLE device_sums (
    device INTEGER, since_hour BIGINT, first_hour BIGINT, last_hour BIGINT,
    accounted_ns HUGEINT, gap_ns HUGEINT, unknown_ns HUGEINT, busy_ns HUGEINT, energy_mj HUGEINT
);
CREATE TABLE device_hours (place UBIGINT, since_hour BIGINT, day BIGINT, hours INTEGER);
"""

# Hours are numbered from the Unix epoch. `since_hour` is the start of a span of equal prices.
_DAY_ROWS: Final = """
CREATE OR REPLACE TEMP VIEW day_rows AS
SELECT *, epoch_ms(hour) // 3600000 AS hour_number, {since} AS since_hour
FROM ({rows}) WHERE row IN ('usage', 'device') AND hour_number >= {first} AND hour_number < {beyond}
"""

_DEVICE_DAY: Final = """
CREATE OR REPLACE TEMP TABLE device_day AS
SELECT
    cluster, node, ledger, device, since_hour, hour_number // 24 AS day,
    min(hour_number) AS first_hour, max(hour_number) AS last_hour,
    sum(accounted_ns) AS accounted_ns, sum(gap_ns) AS gap_ns,
    sum(coalesce(unknown_ns, 0)) AS unknown_ns,
    sum(busy_ns) AS busy_ns, sum(energy_mj) AS energy_mj,
    bit_or(CASE WHEN accounted_ns > 0 THEN 1 << (hour_number % 24)::INTEGER ELSE 0 END) AS hours,
    any_value(gpu) AS gpu, arg_max(gpu_index, hour_number) AS gpu_index,
    arg_max(model, hour_number) AS model, arg_max(profile, hour_number) AS profile,
    max(sample_data) AS sample_data
FROM day_rows WHERE row = 'device' GROUP BY ALL
"""
_NEW_DEVICES: Final = """
INSERT INTO devices (cluster, node, device)
SELECT DISTINCT cluster, node, device FROM {used} ANTI JOIN devices USING (cluster, node, device)
"""
# Days are added in order, so later facts replace earlier ones.
_DEVICE_FACTS: Final = """
UPDATE devices SET
    gpu = coalesce(found.gpu, devices.gpu),
    gpu_index = coalesce(found.gpu_index, devices.gpu_index),
    model = coalesce(found.model, devices.model),
    profile = coalesce(found.profile, devices.profile),
    sample_data = coalesce(found.sample_data, devices.sample_data)
FROM (
    SELECT
        cluster, node, device, arg_max(gpu, last_hour) AS gpu,
        arg_max(gpu_index, last_hour) AS gpu_index, arg_max(model, last_hour) AS model,
        arg_max(profile, last_hour) AS profile, max(sample_data) AS sample_data
    FROM device_day GROUP BY ALL
) AS found
WHERE devices.cluster = found.cluster AND devices.node = found.node
    AND devices.device = found.device
"""
_DEVICE_SUMS: Final = """
INSERT INTO device_sums
SELECT
    id, since_hour, min(first_hour), max(last_hour), sum(accounted_ns), sum(gap_ns),
    sum(unknown_ns), sum(device_day.busy_ns), sum(device_day.energy_mj)
FROM device_day JOIN devices USING (cluster, node, device) GROUP BY ALL
"""
_DEVICE_HOURS: Final = f"""
INSERT INTO device_hours SELECT {PLACE}, since_hour, day, hours FROM device_day WHERE hours <> 0
"""  # noqa: S608

_KEYS: Final = "cluster, node, ledger, device, namespace, pod, container, pod_uid, since_hour"
# Bit n of a mask is hour n of the day. With a late gain, an hour has several rows.
_CONTAINER_DAY: Final = f"""
CREATE OR REPLACE TEMP TABLE container_day AS
SELECT
    {_KEYS},
    sum(held_ns) AS held_ns, sum(busy_ns) AS busy_ns, sum(energy_mj) AS energy_mj,
    sum(CASE WHEN busy_ns IS NOT NULL THEN held_ns END) AS held_with_busy_ns,
    bit_or(CASE WHEN busy_ns IS NULL THEN hour_bit ELSE 0 END) AS hours_without_busy,
    bit_or(CASE WHEN busy_ns IS NULL THEN 0 ELSE hour_bit END) AS hours_with_busy,
    bit_or(CASE WHEN energy_mj IS NULL THEN hour_bit ELSE 0 END) AS hours_without_energy,
    bit_or(CASE WHEN energy_mj IS NULL THEN 0 ELSE hour_bit END) AS hours_with_energy,
    bit_or(CASE WHEN held_ns <> 0 THEN hour_bit ELSE 0 END) AS hours_held,
    {CONTEST}
FROM (SELECT *, 1 << (hour_number % 24)::INTEGER AS hour_bit FROM day_rows WHERE row = 'usage')
GROUP BY ALL
"""  # noqa: S608

_MIXED: Final = """
SELECT count(*) FROM container_day
WHERE hours_with_busy & hours_without_busy <> 0 OR hours_with_energy & hours_without_energy <> 0
"""
# Where an hour has rows with and without a value, its rows are one row first. Its value is unknown
# if the sum is 0 and the last row has none: so does the ledger.
_JOINED_HOURS: Final = f"""
CREATE OR REPLACE TEMP TABLE joined_hours AS
SELECT
    {_KEYS}, hour_number, sum(held_ns) AS held_ns,
    CASE WHEN sum(busy_ns) = 0 AND arg_max(busy_ns IS NULL, serial) THEN NULL
        ELSE sum(busy_ns) END AS busy_ns,
    CASE WHEN sum(energy_mj) = 0 AND arg_max(energy_mj IS NULL, serial) THEN NULL
        ELSE sum(energy_mj) END AS energy_mj,
    CASE WHEN NOT {CONTEST_MISSING} THEN coalesce(sum(contested_ns), 0) END AS contested_ns,
    CASE WHEN NOT {CONTEST_MISSING} THEN coalesce(sum(switching_ns), 0) END AS switching_ns,
    'usage' AS row
FROM {{rows}} WHERE row = 'usage' GROUP BY ALL
"""  # noqa: S608

_IDENTITY: Final = "cluster, node, ledger, namespace, pod, container, pod_uid"
_DAY_FACTS: Final = f"""
CREATE OR REPLACE TEMP TABLE day_facts AS
SELECT
    {_IDENTITY}, max(serial) AS facts_serial, arg_max(owner_kind, serial) AS owner_kind,
    arg_max(owner_name, serial) AS owner_name, arg_max(labels, serial) AS labels
FROM ({{rows}}) WHERE row = 'container' GROUP BY ALL
"""  # noqa: S608
# A container without a name keeps its uid, because another container may give it a name.
_NAMES: Final = MappingProxyType(
    {
        "device": "NULL::VARCHAR AS namespace, NULL::VARCHAR AS pod, NULL::VARCHAR AS pod_uid",
        "namespace": f"CASE WHEN {kind_of_owner('one.pod_uid')} = 'pod' "
        "THEN one.namespace ELSE '' END AS namespace, CASE WHEN one.pod = '' THEN '' END AS pod, "
        "CASE WHEN one.pod = '' THEN one.pod_uid END AS pod_uid",
        "pod": "one.namespace, one.pod, one.pod_uid",
        "facts": "one.ledger, one.namespace, one.pod, one.container, one.pod_uid, "
        "owner_kind, owner_name, labels, facts_serial",
    }
)
_UNKNOWN_FACTS: Final = "one.ledger, one.namespace, one.pod, one.container, one.pod_uid"
_WITH_FACTS: Final = f"LEFT JOIN day_facts USING ({_IDENTITY})"
# No busy time is missing in an hour of a device without counted time, as that of a GPU with MIG
# instances: it has only energy.
_SUMS: Final = """
INSERT INTO sums BY NAME
SELECT
    devices.id AS device, one.container IS NULL AS is_unattributed, one.since_hour, {names},
    sum(one.held_ns) AS held_ns, sum(one.busy_ns) AS busy_ns,
    sum(CASE WHEN is_unattributed THEN -one.busy_ns
        ELSE one.held_with_busy_ns - one.busy_ns END) AS idle_ns,
    sum(one.energy_mj) AS energy_mj,
    bool_or(CASE WHEN is_unattributed
        THEN one.hours_without_busy & (one.hours_held | coalesce(counted.hours, 0)) <> 0
        ELSE one.hours_without_busy <> 0 END) AS busy_missing,
    bool_or(one.hours_without_energy <> 0) AS energy_missing, 0 AS holdings,
    sum(one.contested_ns) AS contested_ns, sum(one.switching_ns) AS switching_ns,
    bool_or(one.contest_missing) AS contest_missing
FROM container_day AS one
JOIN devices USING (cluster, node, device)
LEFT JOIN (FROM device_hours WHERE day = {day}) AS counted
    ON counted.place = {place} AND counted.since_hour = one.since_hour
{facts} GROUP BY ALL
"""

# A holding counts if its container has usage of its device in the span. For most holdings, the
# usage is on the day of their end.
_HOLDINGS: Final = f"""
INSERT INTO sums BY NAME
SELECT
    devices.id AS device, false AS is_unattributed, one.since_hour, {{names}}, 0 AS held_ns,
    false AS busy_missing, false AS energy_missing, count(*) AS holdings, false AS contest_missing
FROM {{ended}} AS ended
JOIN (
    SELECT {_IDENTITY}, device, min(since_hour) AS since_hour FROM {{used}}
    WHERE container IS NOT NULL GROUP BY ALL
) AS one USING ({_IDENTITY}, device)
JOIN devices USING (cluster, node, device)
{{facts}} GROUP BY ALL
"""  # noqa: S608
_ELSEWHERE: Final = f"""
INSERT INTO ended_elsewhere FROM ended ANTI JOIN {{used}} USING ({_IDENTITY}, device)
"""
_ALL_ELSEWHERE: Final = """
INSERT INTO ended_elsewhere FROM ended
"""
_UIDS: Final = """
CREATE OR REPLACE TEMP TABLE wanted_uids AS
SELECT pod_uid FROM ended_elsewhere
UNION SELECT pod_uid FROM sums WHERE pod = '' AND pod_uid <> ''
"""
_SAME_UIDS: Final = """
INSERT INTO same_uids
SELECT cluster, node, ledger, device, namespace, pod, container, pod_uid, min(since_hour)
FROM day_rows
WHERE row = 'usage' AND container IS NOT NULL AND pod_uid IN (SELECT pod_uid FROM wanted_uids)
GROUP BY ALL
"""


def sum_usage(
    sources: RowSources,
    start_ns: int,
    end_ns: int,
    changes: Sequence[int] = (),
    detail: Detail = "facts",
    *,
    by_price: bool = False,
) -> None:
    """Sum the usage in a span of time into the tables of this module.

    Args:
        sources: the rows.
        start_ns: start of the span, in nanoseconds of Unix time.
        end_ns: end of the span, in nanoseconds of Unix time.
        changes: moments at which prices change, in nanoseconds of Unix time: full hours, sorted.
        detail: which names are needed.
        by_price: whether usage of several devices with equal prices may be one row of `sums`.

    Raises:
        TransientError: a file cannot be read.
        PermanentError: a file is damaged, or the memory limit is too low.
    """
    database = sources.database
    database.execute(_TABLES)
    make_places(database)
    first, beyond = start_ns // HOUR_NS, -(-end_ns // HOUR_NS)
    edges = [ns // HOUR_NS for ns in changes if first < ns // HOUR_NS < beyond]
    since = "CASE"
    for edge in reversed(edges):
        since += f" WHEN hour_number >= {edge} THEN {edge}"
    since = f"{since} ELSE {first} END" if edges else f"{first}"
    span = {"first": first, "beyond": beyond, "since": since}
    ends = first * HOUR_NS, beyond * HOUR_NS
    days = day_of_moment(start_ns), day_of_moment(end_ns - 1)
    in_span = {day: rows for day, rows in sources.days.items() if days[0] <= day <= days[1]}
    for rows in in_span.values():
        database.execute(_DAY_ROWS.format(rows=rows, **span))
        for statement in (
            *(_DEVICE_DAY, _NEW_DEVICES.format(used="device_day")),
            *(_DEVICE_FACTS, _DEVICE_SUMS, _DEVICE_HOURS),
        ):
            database.execute(statement)
        add_places(database, "device_day")
    choose_classes(database, by_price=by_price)
    merged = 0
    for day, rows in sources.days.items():
        number = (day - _EPOCH).days
        if day not in in_span:
            # Holdings that ended after the span.
            find_ended(database, rows, *ends)
            database.execute(_ALL_ELSEWHERE)
            continue
        database.execute(_DAY_ROWS.format(rows=rows, **span))
        if detail in _WITHOUT_CONTAINERS:
            _add_day_without_containers(database, _NAMES[detail], number)
            add_holdings(database, rows, _NAMES[detail], *ends)
            if _count(database) > 2 * merged + _FEW_SUMS:
                merged = merge_days(database)
        else:
            find_ended(database, rows, *ends)
            _add_day(database, rows, detail, number)
    database.execute(_UIDS)
    if not database.execute("SELECT EXISTS (FROM wanted_uids)")[0][0]:
        return
    for rows in in_span.values():
        database.execute(_DAY_ROWS.format(rows=rows, **span))
        database.execute(_SAME_UIDS)
    names = _UNKNOWN_FACTS if detail == "facts" else _NAMES[detail]
    database.execute(
        _HOLDINGS.format(ended="ended_elsewhere", used="same_uids", names=names, facts="")
    )


def _add_day_without_containers(database: Database, names: str, day: int) -> None:
    usage_rows = prepare_day(database, _JOINED_HOURS.format(rows="mixed_rows"))
    while not sum_day(database, usage_rows, names, day):
        add_places(database, "(FROM day_rows WHERE row = 'usage')")
        database.execute(_NEW_DEVICES.format(used="places"))


def _add_day(database: Database, rows: str, detail: Detail, day: int) -> None:
    names = _NAMES[detail]
    database.execute(_CONTAINER_DAY)
    if database.execute(_MIXED)[0][0]:
        database.execute(_JOINED_HOURS.format(rows="day_rows"))
        database.execute(_CONTAINER_DAY.replace("FROM day_rows", "FROM joined_hours"))
    database.execute(_NEW_DEVICES.format(used="container_day"))
    if detail == "facts":
        database.execute(_DAY_FACTS.format(rows=rows))
    facts = _WITH_FACTS if detail == "facts" else ""
    place = "hash(one.cluster, one.node, one.ledger, one.device)"
    database.execute(_SUMS.format(names=names, facts=facts, day=day, place=place))
    database.execute(
        _HOLDINGS.format(ended="ended", used="container_day", names=names, facts=facts)
    )
    database.execute(_ELSEWHERE.format(used="container_day"))


def _count(database: Database) -> int:
    return int(database.execute("SELECT count(*) FROM sums")[0][0])
