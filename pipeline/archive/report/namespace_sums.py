"""Sums the usage of a day by device and namespace, in DuckDB, for reports without containers.

A day of 1,000 nodes has 900,000 rows of usage and 200,000 containers. To group these by all names
of a container takes most of the time of a report. By namespace or by device, it is not needed:

- Amounts are summed directly. They are kept by device only where a report needs the device:
  otherwise one device stands for all that have the same price.
- Where a container has rows with and without a value for the same hour, the rows of its device are
  joined by hour first.
- Whether the container of a holding has usage is looked up by a hash of its names. Two of the
  containers of such a day have the same hash once in a billion days.
- `place` is a hash of cluster, node, ledger and device. If two had the same, the report would fail.

The tables are those of `usage_sums`.
"""

from typing import Final

from pipeline.archive.database import Database

_NAMES: Final = "cluster, node, ledger, device"
PLACE: Final = f"hash({_NAMES})"
"""SQL of the number of a device of a ledger."""
_HASH: Final = f"hash({_NAMES}, namespace, pod, container, pod_uid)"

CONTEST_MISSING: Final = (
    "bool_or(busy_ns IS NOT NULL AND (contested_ns IS NULL OR switching_ns IS NULL))"
)
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

# Bit n of a mask is hour n of the day, and bit n + 24 the same hour with a value. With a late gain,
# an hour has several rows.
_USED: Final = f"""
CREATE OR REPLACE TEMP TABLE used AS
SELECT
    {_HASH} AS container_hash, min(since_hour) AS since_hour,
    bit_or(CASE WHEN busy_ns IS NULL THEN hour_bit ELSE hour_bit << 24 END) AS busy_hours,
    bit_or(CASE WHEN energy_mj IS NULL THEN hour_bit ELSE hour_bit << 24 END) AS energy_hours
FROM (
    SELECT *, 1::BIGINT << (hour_number % 24)::INTEGER AS hour_bit
    FROM day_rows WHERE row = 'usage'
)
GROUP BY container_hash
"""  # noqa: S608
_MIXED: Final = """
CREATE OR REPLACE TEMP TABLE mixed AS
SELECT container_hash FROM used
WHERE (busy_hours >> 24) & busy_hours & 16777215 <> 0
    OR (energy_hours >> 24) & energy_hours & 16777215 <> 0
"""
_SOME_MIXED: Final = "SELECT EXISTS (FROM mixed)"
_MIXED_ROWS: Final = f"""
CREATE OR REPLACE TEMP TABLE mixed_places AS
SELECT DISTINCT {PLACE} AS place FROM day_rows
WHERE row = 'usage' AND {_HASH} IN (FROM mixed);
CREATE OR REPLACE TEMP VIEW mixed_rows AS
SELECT * FROM day_rows WHERE {PLACE} IN (FROM mixed_places)
"""  # noqa: S608
_WITH_JOINED: Final = f"""(
    SELECT * FROM day_rows WHERE {PLACE} NOT IN (FROM mixed_places)
    UNION ALL BY NAME SELECT * FROM joined_hours
)"""  # noqa: S608

_PLACES: Final = """
CREATE TABLE places (
    cluster VARCHAR, node VARCHAR, ledger VARCHAR, device VARCHAR, place UBIGINT PRIMARY KEY
)
"""
_NEW_PLACES: Final = f"""
INSERT INTO places SELECT DISTINCT {_NAMES}, {PLACE} FROM {{rows}} ANTI JOIN places USING ({_NAMES})
"""  # noqa: S608
_KNOWN: Final = """
CREATE OR REPLACE TEMP TABLE known AS
SELECT place, id, coalesce(price_device, id) AS price_device
FROM places JOIN devices USING (cluster, node, device) LEFT JOIN classes USING (id)
"""

# Who has no name needs its own device, because a name is looked up by node.
_DEVICE: Final = "CASE WHEN one.pod = '' THEN id ELSE price_device END AS device"
_OF_CONTAINERS: Final = f"""
CREATE OR REPLACE TEMP TABLE usage_day AS
SELECT
    {_DEVICE}, false AS is_unattributed, since_hour, {{names}},
    sum(held_ns) AS held_ns, sum(busy_ns) AS busy_ns,
    sum(CASE WHEN busy_ns IS NOT NULL THEN held_ns::HUGEINT - busy_ns END) AS idle_ns,
    sum(energy_mj) AS energy_mj, bool_or(busy_ns IS NULL) AS busy_missing,
    bool_or(energy_mj IS NULL) AS energy_missing, 0 AS holdings, {CONTEST}
FROM {{rows}} AS one
LEFT JOIN known ON place = hash(one.cluster, one.node, one.ledger, one.device)
WHERE row = 'usage' AND container IS NOT NULL
GROUP BY ALL
"""  # noqa: S608
# No busy time is missing in an hour of a device without counted time, as that of a GPU with MIG
# instances: it has only energy.
_UNATTRIBUTED: Final = f"""
INSERT INTO usage_day BY NAME
SELECT
    id AS device, true AS is_unattributed, one.since_hour, held_ns, busy_ns, -busy_ns AS idle_ns,
    energy_mj, hours_without_busy & (hours_held | coalesce(hours, 0)) <> 0 AS busy_missing,
    energy_missing, 0 AS holdings
FROM (
    SELECT
        {PLACE} AS place, since_hour, sum(held_ns) AS held_ns, sum(busy_ns) AS busy_ns,
        sum(energy_mj) AS energy_mj, bool_or(energy_mj IS NULL) AS energy_missing,
        bit_or(CASE WHEN busy_ns IS NULL THEN hour_bit ELSE 0 END) AS hours_without_busy,
        bit_or(CASE WHEN held_ns <> 0 THEN hour_bit ELSE 0 END) AS hours_held
    FROM (
        SELECT *, 1 << (hour_number % 24)::INTEGER AS hour_bit
        FROM {{rows}} WHERE row = 'usage' AND container IS NULL
    )
    GROUP BY place, since_hour
) AS one
LEFT JOIN known USING (place)
LEFT JOIN (FROM device_hours WHERE day = {{day}}) AS counted
    ON counted.place = one.place AND counted.since_hour = one.since_hour
"""  # noqa: S608
# Nearly all devices with usage have rows of their own.
_UNKNOWN_PLACES: Final = "SELECT EXISTS (FROM usage_day WHERE device IS NULL)"
_USAGE: Final = "INSERT INTO sums BY NAME SELECT * FROM usage_day"

# A holding counts if its container has usage of its device in the span. For most holdings, the
# usage is on the day of their end. The row with the highest serial is valid.
_ENDED: Final = f"""
CREATE OR REPLACE TEMP TABLE ended AS
SELECT container_hash, own_hash, serial, start_ns, end_ns, place, namespace, pod, pod_uid FROM (
    SELECT
        {_HASH} AS container_hash, hash(cluster, node, ledger, holding) AS own_hash, serial,
        start_ns, end_ns, {PLACE} AS place, {{names}}
    FROM ({{rows}}) AS one WHERE row = 'holding'
)
"""  # noqa: S608
_REPLACED: Final = "SELECT count(DISTINCT own_hash) <> count(*) FROM ended"
_LATEST: Final = """
CREATE OR REPLACE TEMP TABLE ended AS
FROM ended QUALIFY row_number() OVER (PARTITION BY own_hash ORDER BY serial DESC) = 1
"""
_OUTSIDE: Final = """
DELETE FROM ended WHERE (end_ns > {start_ns} AND start_ns < {end_ns}) IS NOT TRUE
"""
_HOLDINGS: Final = f"""
INSERT INTO sums BY NAME
SELECT
    {_DEVICE}, false AS is_unattributed, since_hour, namespace, pod, pod_uid, 0 AS held_ns,
    false AS busy_missing, false AS energy_missing, count(*) AS holdings, false AS contest_missing
FROM ended AS one JOIN used USING (container_hash) JOIN known USING (place) GROUP BY ALL
"""  # noqa: S608
_ELSEWHERE: Final = """
CREATE OR REPLACE TEMP TABLE elsewhere AS
SELECT own_hash, serial FROM ended ANTI JOIN used USING (container_hash)
"""
_SOME_ELSEWHERE: Final = "SELECT EXISTS (FROM elsewhere)"
_ADD_ELSEWHERE: Final = f"""
INSERT INTO ended_elsewhere
SELECT {_NAMES}, namespace, pod, container, pod_uid
FROM ({{rows}}) AS one JOIN elsewhere
    ON hash(cluster, node, ledger, holding) = own_hash AND one.serial = elsewhere.serial
WHERE row = 'holding'
"""  # noqa: S608

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


def prepare_day(database: Database, joined_hours: str) -> str:
    """Make the table `used` of the containers in the view `day_rows`.

    Args:
        database: a database.
        joined_hours: a statement that makes `joined_hours` of the view `mixed_rows`: usage in
            which each hour of a container has one row.

    Returns:
        The rows of usage to sum, as SQL.
    """
    database.execute(_USED)
    database.execute(_MIXED)
    if not database.execute(_SOME_MIXED)[0][0]:
        return "day_rows"
    database.execute(_MIXED_ROWS)
    database.execute(joined_hours)
    return _WITH_JOINED


def sum_day(database: Database, usage_rows: str, names: str, day: int) -> bool:
    """Add the usage of a day to `sums`, unless a device in it is not known.

    Args:
        database: a database after `prepare_day`.
        usage_rows: what `prepare_day` returned.
        names: the columns `namespace`, `pod` and `pod_uid` of a row `one`, in SQL.
        day: number of the day since 1970-01-01.

    Returns:
        Whether all devices are known. If not, add them, and call this again.
    """
    database.execute(_KNOWN)
    database.execute(_OF_CONTAINERS.format(rows=usage_rows, names=names))
    database.execute(_UNATTRIBUTED.format(rows=usage_rows, day=day))
    if database.execute(_UNKNOWN_PLACES)[0][0]:
        return False
    database.execute(_USAGE)
    return True


def add_holdings(database: Database, rows: str, names: str, start_ns: int, end_ns: int) -> None:
    """Add the holdings of a day that overlap a span to `sums`, or to `ended_elsewhere`.

    Args:
        database: a database after `sum_day`.
        rows: the SQL query of the day's rows.
        names: those of `sum_day`.
        start_ns: start of the span, in nanoseconds of Unix time.
        end_ns: end of the span, in nanoseconds of Unix time.
    """
    database.execute(_ENDED.format(rows=rows, names=names))
    if database.execute(_REPLACED)[0][0]:
        database.execute(_LATEST)
    database.execute(_OUTSIDE.format(start_ns=start_ns, end_ns=end_ns))
    database.execute(_HOLDINGS)
    database.execute(_ELSEWHERE)
    if database.execute(_SOME_ELSEWHERE)[0][0]:
        database.execute(_ADD_ELSEWHERE.format(rows=rows))


def merge_days(database: Database) -> int:
    """Join the rows of `sums` that have the same names; return how many there are then."""
    return int(database.execute(_MERGE)[0][0])
