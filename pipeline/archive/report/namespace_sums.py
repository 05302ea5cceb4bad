"""Sums the usage of a day by device and namespace, in DuckDB, without a table of its containers.

A day of 1,000 nodes has 1.2 million rows and 200,000 containers. To group rows by all names of a
container takes most of the time of a report. By namespace or by device, it is not needed:

- Amounts are summed directly.
- The rows of an hour are joined only on devices on which a container has rows with and without a
  value for the same hour.
- Whether the container of a holding has usage is looked up by a hash of its names.

The tables are those of `usage_sums`. `place` is a hash of cluster, node, ledger and device: rows
are grouped by this number, which takes half of the time. If two had the same number, the report
would fail.
"""

from typing import Final

from pipeline.archive.database import Database

_HASH: Final = "hash(cluster, node, ledger, device, namespace, pod, container, pod_uid)"
_PLACE: Final = "cluster, node, ledger, device"
_PLACED: Final = f"*, hash({_PLACE}) AS place"

# The texts are read once. What follows compares only numbers.
_ROWS: Final = f"""
SELECT
    hash({_PLACE}) AS place, {_HASH} AS container_hash, since_hour, hour_number,
    one.container IS NULL AS is_unattributed, {{names}}, held_ns, busy_ns, energy_mj
FROM {{rows}} AS one WHERE row = 'usage'
"""  # noqa: S608
_USAGE_ROWS: Final = "CREATE OR REPLACE TEMP TABLE usage_rows AS "

# Bit n of a mask is hour n of the day. With a late gain, an hour has several rows.
_SUMS: Final = """
SELECT
    place, since_hour, is_unattributed, namespace, pod, pod_uid,
    sum(held_ns) AS held_ns, sum(busy_ns) AS busy_ns, sum(energy_mj) AS energy_mj,
    sum(CASE WHEN busy_ns IS NOT NULL THEN held_ns END) AS held_with_busy_ns,
    bit_or(CASE WHEN busy_ns IS NULL THEN hour_bit ELSE 0 END) AS hours_without_busy,
    bit_or(CASE WHEN busy_ns IS NULL THEN 0 ELSE hour_bit END) AS hours_with_busy,
    bit_or(CASE WHEN energy_mj IS NULL THEN hour_bit ELSE 0 END) AS hours_without_energy,
    bit_or(CASE WHEN energy_mj IS NULL THEN 0 ELSE hour_bit END) AS hours_with_energy,
    bit_or(CASE WHEN held_ns <> 0 THEN hour_bit ELSE 0 END) AS hours_held
FROM (SELECT *, 1 << (hour_number % 24)::INTEGER AS hour_bit FROM {rows})
GROUP BY ALL
"""
_USAGE_DAY: Final = "CREATE OR REPLACE TEMP TABLE usage_day AS "

# Only a group that has an hour with and an hour without a value can have such a container.
_MIXED: Final = """
CREATE OR REPLACE TEMP TABLE mixed_places AS
SELECT DISTINCT place FROM (
    SELECT place, container_hash, hour_number FROM usage_rows
    WHERE place IN (
        SELECT place FROM usage_day WHERE hours_with_busy & hours_without_busy <> 0
            OR hours_with_energy & hours_without_energy <> 0
    )
    GROUP BY ALL
    HAVING count(busy_ns) NOT IN (0, count(*)) OR count(energy_mj) NOT IN (0, count(*))
)
"""
_SOME_MIXED: Final = "SELECT EXISTS (FROM mixed_places)"
_MIXED_ROWS: Final = f"""
CREATE OR REPLACE TEMP VIEW mixed_rows AS
SELECT * FROM day_rows WHERE hash({_PLACE}) IN (SELECT place FROM mixed_places)
"""  # noqa: S608
_NO_MIXED: Final = "DELETE FROM usage_day WHERE place IN (SELECT place FROM mixed_places)"

_PLACES: Final = f"""
CREATE OR REPLACE TEMP TABLE places (
    cluster VARCHAR, node VARCHAR, ledger VARCHAR, device VARCHAR, place UBIGINT PRIMARY KEY
);
INSERT INTO places SELECT DISTINCT {_PLACE}, hash({_PLACE}) FROM device_day;
SELECT EXISTS (FROM usage_day ANTI JOIN places USING (place))
"""  # noqa: S608
# Nearly all devices with usage have rows of their own.
_OTHER_PLACES: Final = f"""
INSERT INTO places
SELECT DISTINCT {_PLACE}, hash({_PLACE}) AS place FROM day_rows
WHERE row = 'usage' AND place NOT IN (SELECT place FROM places)
"""  # noqa: S608

_USED: Final = """
CREATE OR REPLACE TEMP TABLE used AS
SELECT container_hash, min(since_hour) AS since_hour
FROM usage_rows WHERE NOT is_unattributed GROUP BY container_hash
"""
_ENDED: Final = f"SELECT {_PLACED}, {_HASH} AS container_hash FROM ended"  # noqa: S608
_ELSEWHERE: Final = f"""
INSERT INTO ended_elsewhere
SELECT cluster, node, ledger, device, namespace, pod, container, pod_uid, holdings
FROM ({_ENDED}) ANTI JOIN used USING (container_hash)
"""  # noqa: S608

# A holding counts if its container has usage of its device in the span. For most holdings, the
# usage is on the day of their end. No busy time is missing in an hour of a device without counted
# time, as that of a GPU with MIG instances: it has only energy.
_INSERT: Final = f"""
INSERT INTO sums BY NAME
WITH known AS (
    SELECT place, id AS device FROM places JOIN devices USING (cluster, node, device)
),
counted AS (SELECT hash({_PLACE}) AS place, since_hour, hours FROM device_day)
SELECT
    known.device, is_unattributed, one.since_hour, namespace, pod, pod_uid, held_ns, busy_ns,
    CASE WHEN is_unattributed THEN -busy_ns ELSE held_with_busy_ns - busy_ns END AS idle_ns,
    energy_mj,
    CASE WHEN is_unattributed THEN hours_without_busy & (hours_held | coalesce(hours, 0)) <> 0
        ELSE hours_without_busy <> 0 END AS busy_missing,
    hours_without_energy <> 0 AS energy_missing, 0 AS holdings
FROM usage_day AS one
JOIN known USING (place)
LEFT JOIN counted
    ON is_unattributed AND counted.place = one.place AND counted.since_hour = one.since_hour
UNION ALL BY NAME
SELECT
    known.device, false AS is_unattributed, since_hour, namespace, pod, pod_uid, 0 AS held_ns,
    false AS busy_missing, false AS energy_missing, holdings
FROM (
    SELECT place, since_hour, {{names}}, sum(holdings) AS holdings
    FROM ({_ENDED}) AS one JOIN used USING (container_hash) GROUP BY ALL
)
JOIN known USING (place)
"""  # noqa: S608

_MERGE: Final = """
CREATE OR REPLACE TABLE merged AS
SELECT
    device, is_unattributed, since_hour, namespace, pod, pod_uid,
    sum(held_ns) AS held_ns, sum(busy_ns) AS busy_ns, sum(idle_ns) AS idle_ns,
    sum(energy_mj) AS energy_mj, bool_or(busy_missing) AS busy_missing,
    bool_or(energy_missing) AS energy_missing, sum(holdings) AS holdings
FROM sums GROUP BY ALL;
TRUNCATE sums;
INSERT INTO sums BY NAME SELECT * FROM merged;
DROP TABLE merged;
SELECT count(*) FROM sums
"""


def sum_day(database: Database, names: str, joined_hours: str) -> None:
    """Sum the usage of the view `day_rows` into the table `usage_day`, and make `places`.

    Args:
        database: a database with `device_day`, the sums of the devices.
        names: the columns `namespace`, `pod` and `pod_uid` of a row `one`, in SQL.
        joined_hours: a statement that makes `joined_hours` of the view `mixed_rows`: usage in
            which each hour of a container has one row.
    """
    database.execute(_USAGE_ROWS + _ROWS.format(names=names, rows="day_rows"))
    database.execute(_USAGE_DAY + _SUMS.format(rows="usage_rows"))
    database.execute(_MIXED)
    if database.execute(_SOME_MIXED)[0][0]:
        database.execute(_MIXED_ROWS)
        database.execute(joined_hours)
        database.execute(_NO_MIXED)
        joined = _ROWS.format(names=names, rows="joined_hours")
        database.execute("INSERT INTO usage_day BY NAME " + _SUMS.format(rows=f"({joined})"))
    if database.execute(_PLACES)[0][0]:
        database.execute(_OTHER_PLACES)


def add_day(database: Database, names: str) -> None:
    """Add the tables `usage_day` and `ended` to `sums` and `ended_elsewhere`.

    Args:
        database: a database after `sum_day`, with all devices.
        names: those of `sum_day`.
    """
    database.execute(_USED)
    database.execute(_INSERT.format(names=names))
    database.execute(_ELSEWHERE)


def merge_days(database: Database) -> int:
    """Join the rows of `sums` that have the same names; return how many there are then."""
    return int(database.execute(_MERGE)[0][0])
