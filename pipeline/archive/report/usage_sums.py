"""Sums the usage of an archive by device and container, day by day, in DuckDB.

A day of 8,000 GPUs has a million rows. Its sums have a row for each container on a device, so the
memory for a report depends on the number of these and not on the number of hours.

Tables that remain:

- `devices`: each device of each node, with its last known model, profile and index.
- `containers`: each container in each ledger. Its number 0 is no known container.
- `sums`: amounts by device, container, span of equal prices, and day.
- `device_sums`: totals by device, span of equal prices, and day.
"""

from collections.abc import Sequence
from typing import Final

from pipeline.archive.database import Database
from pipeline.archive.report.row_sources import RowSources
from pipeline.archive.row_columns import day_of_moment
from pipeline.ledger.schema import HOUR_NS

_TABLES: Final = """
CREATE SEQUENCE device_numbers;
CREATE SEQUENCE container_numbers;
CREATE TABLE devices (
    id INTEGER DEFAULT nextval('device_numbers'),
    cluster VARCHAR, node VARCHAR, device VARCHAR,
    gpu VARCHAR, gpu_index INTEGER, model VARCHAR, profile VARCHAR, sample_data VARCHAR
);
CREATE TABLE containers (
    id INTEGER DEFAULT nextval('container_numbers'),
    cluster VARCHAR, node VARCHAR, ledger VARCHAR,
    namespace VARCHAR, pod VARCHAR, container VARCHAR, pod_uid VARCHAR,
    owner_kind VARCHAR, owner_name VARCHAR, labels VARCHAR, facts_serial BIGINT
);
CREATE TABLE sums (
    device INTEGER, container INTEGER, since_hour BIGINT,
    held_ns HUGEINT, busy_ns HUGEINT, idle_ns HUGEINT, energy_mj HUGEINT,
    busy_missing BOOLEAN, energy_missing BOOLEAN
);
CREATE TABLE device_sums (
    device INTEGER, since_hour BIGINT, first_hour BIGINT, last_hour BIGINT,
    accounted_ns HUGEINT, gap_ns HUGEINT, unknown_ns HUGEINT, busy_ns HUGEINT, energy_mj HUGEINT
);
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
    cluster, node, ledger, device, since_hour,
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
SELECT * FROM (
    SELECT cluster, node, device FROM device_day
    UNION SELECT cluster, node, device FROM container_day
)
ANTI JOIN devices USING (cluster, node, device)
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
    bit_or(CASE WHEN held_ns <> 0 THEN hour_bit ELSE 0 END) AS hours_held
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
    'usage' AS row
FROM day_rows WHERE row = 'usage' GROUP BY ALL
"""  # noqa: S608

_NEW_CONTAINERS: Final = """
INSERT INTO containers (cluster, node, ledger, namespace, pod, container, pod_uid)
SELECT DISTINCT cluster, node, ledger, namespace, pod, container, pod_uid FROM container_day
ANTI JOIN containers USING (cluster, node, ledger, namespace, pod, container, pod_uid)
WHERE container IS NOT NULL
"""
_FACTS: Final = """
UPDATE containers SET
    owner_kind = found.owner_kind, owner_name = found.owner_name, labels = found.labels,
    facts_serial = found.facts_serial
FROM (
    SELECT
        cluster, node, ledger, namespace, pod, container, pod_uid, max(serial) AS facts_serial,
        arg_max(owner_kind, serial) AS owner_kind, arg_max(owner_name, serial) AS owner_name,
        arg_max(labels, serial) AS labels
    FROM ({rows}) WHERE row = 'container' GROUP BY ALL
) AS found
WHERE containers.cluster = found.cluster AND containers.node = found.node
    AND containers.ledger = found.ledger AND containers.namespace = found.namespace
    AND containers.pod = found.pod AND containers.container = found.container
    AND containers.pod_uid = found.pod_uid
    AND found.facts_serial > coalesce(containers.facts_serial, 0)
"""
# No busy time is missing in an hour of a device without counted time, as that of a GPU with MIG
# instances: it has only energy.
_SUMS: Final = """
INSERT INTO sums
SELECT
    devices.id, coalesce(containers.id, 0), day.since_hour, day.held_ns, day.busy_ns,
    CASE WHEN day.container IS NULL THEN -day.busy_ns ELSE day.held_with_busy_ns - day.busy_ns END,
    day.energy_mj,
    CASE WHEN day.container IS NULL
        THEN day.hours_without_busy & (day.hours_held | coalesce(device_day.hours, 0)) <> 0
        ELSE day.hours_without_busy <> 0 END,
    day.hours_without_energy <> 0
FROM container_day AS day
JOIN devices USING (cluster, node, device)
LEFT JOIN containers USING (cluster, node, ledger, namespace, pod, container, pod_uid)
LEFT JOIN device_day USING (cluster, node, ledger, device, since_hour)
"""


def sum_usage(sources: RowSources, start_ns: int, end_ns: int, changes: Sequence[int] = ()) -> None:
    """Sum the usage in a span of time into the tables of this module.

    Args:
        sources: the rows.
        start_ns: start of the span, in nanoseconds of Unix time.
        end_ns: end of the span, in nanoseconds of Unix time.
        changes: moments at which prices change, in nanoseconds of Unix time: full hours, sorted.

    Raises:
        TransientError: a file cannot be read.
        PermanentError: a file is damaged, or the memory limit is too low.
    """
    database = sources.database
    database.execute(_TABLES)
    first, beyond = start_ns // HOUR_NS, -(-end_ns // HOUR_NS)
    edges = [ns // HOUR_NS for ns in changes if first < ns // HOUR_NS < beyond]
    since = "CASE"
    for edge in reversed(edges):
        since += f" WHEN hour_number >= {edge} THEN {edge}"
    since = f"{since} ELSE {first} END" if edges else f"{first}"
    for day, rows in sources.days.items():
        if day_of_moment(start_ns) <= day <= day_of_moment(end_ns - 1):
            span = {"first": first, "beyond": beyond, "since": since}
            database.execute(_DAY_ROWS.format(rows=rows, **span))
            _add_day(database, rows)


def _add_day(database: Database, rows: str) -> None:
    database.execute(_DEVICE_DAY)
    database.execute(_CONTAINER_DAY)
    if database.execute(_MIXED)[0][0]:
        database.execute(_JOINED_HOURS)
        database.execute(_CONTAINER_DAY.replace("FROM day_rows", "FROM joined_hours"))
    for statement in (_NEW_DEVICES, _DEVICE_FACTS, _DEVICE_SUMS, _NEW_CONTAINERS):
        database.execute(statement)
    database.execute(_FACTS.format(rows=rows))
    database.execute(_SUMS)
