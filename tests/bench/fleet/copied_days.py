"""Copy the last day of a simulated fleet to more days, as compacted objects of an archive.

python -m tests.bench.fleet --nodes 100 --days 2 --copies 10 --out DAYS
python -m tests.bench.fleet.copied_days DAYS/copied MONTH --days 30

Each copy has other containers and other serials, so that it takes as much time to read as the day
of a real fleet. Its amounts are those of the copied day.
"""

import argparse
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

from pipeline.archive.database import Database, open_database
from pipeline.archive.object_contents import contents_of_raw, encode_contents
from pipeline.archive.object_key import CompactedKey, RawKey, parse_compacted, parse_raw
from pipeline.archive.object_selection import read_contents
from pipeline.archive.parquet_file import ORDER, read_query, write_query

_MEMORY_MB: Final = 1500
_SERIALS: Final = 10_000_000
"""More than the rows of a ledger in a day."""

_DAY_NS: Final = 86_400_000_000_000


def copy_days(source: Path, target: Path, days: int, scratch: Path) -> None:
    """Write copies of the last day of an archive of one cluster to its first days.

    Args:
        source: folder of an archive with compacted objects of one cluster.
        target: folder of the new archive.
        days: number of days.
        scratch: existing folder for temporary files.
    """
    files = sorted((source / "v1" / "clusters").rglob("*.parquet"))
    first, last = (parse_compacted(str(files[at].relative_to(source))) for at in (0, -1))
    with open_database(scratch, memory_mb=_MEMORY_MB) as database:
        found = read_contents(database, {files[-1]: str(last)})
        raw = [parse_raw(key) for key in found[str(last)].replaces]
        for number in range(days):
            shift = (first.day - last.day).days + number
            _write_day(database, files[-1], target, (number, shift), raw)


def _write_day(
    database: Database, file: Path, target: Path, at: tuple[int, int], raw: Sequence[RawKey]
) -> None:
    number, shift = at
    serials = number * _SERIALS
    keys = [
        RawKey(
            *(key.cluster, key.node, key.day + timedelta(days=shift), key.ledger),
            *(key.first + serials, key.last + serials, key.digest),
        )
        for key in raw
    ]
    contents = contents_of_raw([str(key) for key in keys])
    key = CompactedKey.of(keys[0].cluster, keys[0].day, contents.replaces)
    (path := target / str(key)).parent.mkdir(parents=True)
    query = f"""
        SELECT * REPLACE (
            day + {shift} AS day,
            hour + {shift} * INTERVAL 1 DAY AS hour,
            serial + {serials} AS serial,
            start_ns + {shift * _DAY_NS} AS start_ns,
            end_ns + {shift * _DAY_NS} AS end_ns,
            CASE WHEN pod = '' THEN '' ELSE pod[:-6] || md5(pod_uid || '{number}')[:5] END AS pod,
            CASE WHEN pod_uid = '' THEN ''
                ELSE CAST(CAST(md5(pod_uid || '{number}') AS UUID) AS VARCHAR) END AS pod_uid,
            md5(holding || '{number}')[:16] AS holding,
            md5(gap || '{number}')[:16] AS gap
        ) FROM ({read_query([file])}) ORDER BY {ORDER}
    """  # noqa: S608
    write_query(database, query, path, encode_contents(contents))


def main(words: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.fleet.copied_days", description=__doc__
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--days", type=int, default=30)
    given = parser.parse_args(words)
    given.target.mkdir(parents=True)
    copy_days(given.source.absolute(), given.target.absolute(), given.days, given.target)


if __name__ == "__main__":
    main()
