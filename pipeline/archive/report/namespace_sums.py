"""Sums the usage of a day by device and namespace, in DuckDB, for reports without containers.

A day of 1,000 nodes has 900,000 rows of usage and 200,000 containers. To group these by all names
of a container takes most of the time of a report. Here, numbers stand for the names:

- Rows are grouped by a hash of the names of the container. Two of the containers of such a day have
  the same hash once in a billion days.
- `place` is a hash of cluster, node, ledger and device. If two had the same, the report would fail.
- The rows of an hour are joined only on devices on which a container has rows with and without a
  value for the same hour.
- The usage of containers is kept by device only where a report needs the device. Otherwise one
  device stands for all that have the same price.

The tables are those of `usage_sums`.
"""

from typing import Final

from pipeline.archive.database import Database

_NAMES: Final = "cluster, node, ledger, device"
PLACE: Final = f"hash({_NAMES})"
"""SQL of the number of a device of a ledger."""
_HASH: Final = f"hash({_NAMES}, namespace, pod, container, pod_uid)"

CONTEST_MISSING: Final = "bool_or(busy_ns IS NOT NULL AND contested_ns + switching_ns IS NULL)"
"""SQL of whether it is unknown for a part of the busy time how much of it is contested."""
CONTEST: Final = f"""sum(contested_ns) AS contested_ns, sum(switching_ns) AS switching_ns,
    {CONTEST_MISSING} AS contest_missing"""
"""SQL of the sums for the error of the busy time."""

# `price_device` is the device that stands for all that have the same price.
_CLASSES: Final = """
CREATE OR REPLACE TEMP TABLE classes AS
SELECT id, {price_device} AS price_device FROM devices
"""
_OF_EQUAL_PRICE: Final = """min(id) OVER (PARTITION BY cluster, coalesce(model, ''),
    coalesce(profile, ''), starts_with(device, 'MIG-'))"""

# Bit n of a mask is hour n of the day. With a late gain, an hour has several rows.
_CONTAINERS: Final = f"""
SELECT
    {_HASH} AS container_hash, since_hour, any_value({PLACE}) AS place,
    any_value(container IS NULL) AS is_unattributed, any_value(namespace) AS namespace,
    any_value(pod) AS pod, any_value(pod_uid) AS pod_uid,
    sum(held_ns) AS held_ns, sum(busy_ns) AS busy_ns, sum(energy_mj) AS energy_mj,
    sum(CASE WHEN busy_ns IS NOT NULL THEN held_ns END) AS held_with_busy_ns,
    bit_or(CASE WHEN busy_ns IS NULL THEN hour_bit ELSE 0 END) AS hours_without_busy,
    bit_or(CASE WHEN busy_ns IS NULL THEN 0 ELSE hour_bit END) AS hours_with_busy,
    bit_or(CASE WHEN energy_mj IS NULL THEN hour_bit ELSE 0 END) AS hours_without_energy,
    bit_or(CASE WHEN energy_mj IS NULL THEN 0 ELSE hour_bit END) AS hours_with_energy,
    bit_or(CASE WHEN held_ns <> 0 THEN hour_bit ELSE 0 END) AS hours_held,
    {CONTEST}
FROM (
    SELECT *, 1 << (hour_number % 24)::INTEGER AS hour_bit FROM {{rows}} WHERE row = 'usage'
)
GROUP BY container_hash, since_hour
"""  # noqa: S608
_USAGE_DAY: Final = "CREATE OR REPLACE TEMP TABLE usage_day AS "
_MIXED: Final = """
CREATE OR REPLACE TEMP TABLE mixed_places AS
SELECT DISTINCT place FROM usage_day WHERE hours_with_busy & hours_without_busy <> 0
    OR hours_with_energy & hours_without_energy <> 0
"""
_SOME_MIXED: Final = "SELECT EXISTS (FROM mixed_places)"
_MIXED_ROWS: Final = f"""
CREATE OR REPLACE TEMP VIEW mixed_rows AS
SELECT * FROM day_rows WHERE {PLACE} IN (SELECT place FROM mixed_places)
"""  # noqa: S608
_NO_MIXED: Final = "DELETE FROM usage_day WHERE place IN (SELECT place FROM mixed_places)"

_PLACES: Final = """
CREATE TABLE places (
    cluster VARCHAR, node VARCHAR, ledger VARCHAR, device VARCHAR, place UBIGINT PRIMARY KEY
)
"""
_NEW_PLACES: Final = f"""
INSERT INTO places SELECT DISTINCT {_NAMES}, {PLACE} FROM {{rows}} ANTI JOIN places USING ({_NAMES})
"""  # noqa: S608
# Nearly all devices with usage have rows of their own.
_UNKNOWN_PLACES: Final = "SELECT EXISTS (FROM usage_day ANTI JOIN places USING (place))"

# A holding counts if its container has usage of its device in the span. For most holdings, the
# usage is on the day of their end.
_HOLDINGS: Final = f"""
CREATE OR REPLACE TEMP TABLE holdings_here AS
SELECT container_hash, min(since_hour) AS since_hour, any_value(holdings) AS holdings
FROM usage_day
JOIN (SELECT {_HASH} AS container_hash, count(*) AS holdings FROM ended GROUP BY container_hash)
    USING (container_hash)
GROUP BY container_hash
"""  # noqa: S608
_ELSEWHERE: Final = f"""
INSERT INTO ended_elsewhere
SELECT * FROM ended WHERE {_HASH} NOT IN (SELECT container_hash FROM holdings_here)
"""  # noqa: S608

# No busy time is missing in an hour of a device without counted time, as that of a GPU with MIG
# instances: it has only energy. Who has no name needs its own device, because a name is looked up
# by node.
_INSERT: Final = """
INSERT INTO sums BY NAME
WITH known AS (
    SELECT place, id, coalesce(price_device, id) AS price_device
    FROM places JOIN devices USING (cluster, node, device) LEFT JOIN classes USING (id)
)
SELECT
    CASE WHEN is_unattributed OR one.pod = '' THEN id ELSE price_device END AS device,
    is_unattributed, one.since_hour, {names}, sum(held_ns) AS held_ns, sum(busy_ns) AS busy_ns,
    sum(CASE WHEN is_unattributed THEN -busy_ns ELSE held_with_busy_ns - busy_ns END) AS idle_ns,
    sum(energy_mj) AS energy_mj,
    bool_or(CASE WHEN is_unattributed THEN hours_without_busy & (hours_held | coalesce(hours, 0))
        ELSE hours_without_busy END <> 0) AS busy_missing,
    bool_or(hours_without_energy <> 0) AS energy_missing,
    coalesce(sum(holdings), 0) AS holdings, sum(contested_ns) AS contested_ns,
    sum(switching_ns) AS switching_ns, bool_or(contest_missing) AS contest_missing
FROM usage_day AS one
JOIN known USING (place)
LEFT JOIN (FROM device_hours WHERE day = {day}) AS counted
    ON is_unattributed AND counted.place = one.place AND counted.since_hour = one.since_hour
LEFT JOIN holdings_here AS ended
    ON ended.container_hash = one.container_hash AND ended.since_hour = one.since_hour
GROUP BY ALL
"""

_MERGE: Final = """
CREATE OR REPLACE TABLE merged AS
SELECT
    device, is_unattributed, since_hour, namespace, pod, pod_uid,
    sum(held_ns) AS held_ns, sum(busy_ns) AS busy_ns, sum(idle_ns) AS idle_ns,
    sum(energy_mj) AS energy_mj, bool_or(busy_missing) AS busy_missing,
    bool_or(energy_missing) AS energy_missing, sum(holdings) AS holdings,
    sum(contested_ns) AS contested_ns, sum(switching_ns) AS switching_ns,
    bool_or(contest_missing) AS contest_missing
FROM sums GROUP BY ALL;
TRUNCATE sums;
INSERT INTO sums BY NAME SELECT * FROM merged;
DROP TABLE merged;
SELECT count(*) FROM sums
"""


def add_places(database: Database, rows: str) -> None:
    """Add the devices of rows to the table `places`.

    Args:
        database: a database after `make_places`.
        rows: name of a table with devices, or an SQL query in parentheses.
    """
    database.execute(_NEW_PLACES.format(rows=rows))


def make_places(database: Database) -> None:
    """Make the table `places`, without rows."""
    database.execute(_PLACES)


def choose_classes(database: Database, *, by_price: bool) -> None:
    """Make the table `classes`, before the first day and after all devices are known.

    Args:
        database: a database with the devices.
        by_price: whether one device may stand for all that have the same price.
    """
    price_device = _OF_EQUAL_PRICE if by_price else "id"
    database.execute(_CLASSES.format(price_device=price_device))


def sum_day(database: Database, joined_hours: str) -> None:
    """Sum the usage of the view `day_rows` into the table `usage_day`, and add to `places`.

    Args:
        database: a database.
        joined_hours: a statement that makes `joined_hours` of the view `mixed_rows`: usage in
            which each hour of a container has one row.
    """
    database.execute(_USAGE_DAY + _CONTAINERS.format(rows="day_rows"))
    database.execute(_MIXED)
    if database.execute(_SOME_MIXED)[0][0]:
        database.execute(_MIXED_ROWS)
        database.execute(joined_hours)
        database.execute(_NO_MIXED)
        database.execute("INSERT INTO usage_day " + _CONTAINERS.format(rows="joined_hours"))
    if database.execute(_UNKNOWN_PLACES)[0][0]:
        add_places(database, "(FROM day_rows WHERE row = 'usage')")


def add_day(database: Database, names: str, day: int) -> None:
    """Add the tables `usage_day` and `ended` to `sums` and `ended_elsewhere`.

    Args:
        database: a database after `sum_day`, with all devices.
        names: the columns `namespace`, `pod` and `pod_uid` of a row `one`, in SQL.
        day: number of the day since 1970-01-01.
    """
    database.execute(_HOLDINGS)
    database.execute(_INSERT.format(names=names, day=day))
    database.execute(_ELSEWHERE)


def merge_days(database: Database) -> int:
    """Join the rows of `sums` that have the same names; return how many there are then."""
    return int(database.execute(_MERGE)[0][0])
