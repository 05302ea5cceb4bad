"""Opens archives and ledger files for a report: their rows in one form, by day, each row once."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final

from pipeline.archive.database import Database, open_database
from pipeline.archive.object_key import parse
from pipeline.archive.object_selection import Selection, fetch_objects
from pipeline.archive.object_store import ObjectStore
from pipeline.archive.parquet_file import read_query
from pipeline.archive.report.ledger_rows import write_ledger_rows
from pipeline.archive.report.raw_merge import merge_raw
from pipeline.archive.row_columns import day_of_moment
from pipeline.archive.row_reading import VIEW, create_rows
from pipeline.archive.work_folder import work_folder
from pipeline.base.errors import PermanentError

_ORIGINS: Final = """
CREATE OR REPLACE TEMP TABLE origins AS
SELECT DISTINCT location, cluster, node, ledger FROM ({sources})
"""
_TWICE: Final = """
SELECT ledger, any_value(node), list_sort(list(DISTINCT location)) FROM origins
GROUP BY ledger HAVING count(DISTINCT location) > 1 ORDER BY ledger LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class RowSources:
    """The rows of all locations.

    Attributes:
        database: a database in which the view `archive_rows` has all rows, each once.
        days: by UTC day, the SQL query of its rows. Queries by day have bounded memory.
        foreign: objects that are not podgpu's, with their locations. They are ignored.
    """

    database: Database
    days: Mapping[date, str]
    foreign: tuple[str, ...]


@contextmanager
def open_rows(
    locations: Sequence[str],
    start_ns: int,
    *,
    clusters: Collection[str] = (),
    now_ns: int = 0,
    memory_mb: int = 640,
    threads: int = 2,
) -> Iterator[RowSources]:
    """Copy what a report needs to a temporary folder, and open it for the context.

    Args:
        locations: archives (see `ObjectStore`) and paths of ledger files.
        start_ns: start of the report, in nanoseconds of Unix time. Later days than those of the
            report are needed too: they have the holdings that ended then.
        clusters: the clusters to read; empty for all.
        now_ns: the present time, in nanoseconds of Unix time. Copies of killed processes that are
            older than a minute are removed.
        memory_mb: memory limit of DuckDB in mebibytes.
        threads: number of DuckDB's threads.

    Raises:
        TransientError: a location cannot be read now.
        PermanentError: a location does not exist, or is refused; an object or a file is damaged,
            foreign or too new; a ledger is in two locations; or there are clusters and a ledger.
    """
    first = day_of_moment(start_ns)
    foreign: list[str] = []
    queries: dict[date, list[str]] = {}
    sources = []
    with (
        work_folder("podgpu-usage-", now_ns / 1e9) as folder,
        open_database(folder, memory_mb=memory_mb, threads=threads) as database,
    ):
        for number, location in enumerate(dict.fromkeys(locations)):
            copies = folder / f"{number:03}"
            copies.mkdir()
            _check_exists(location)
            if is_ledger_file(location):
                _refuse_clusters(location, clusters)
                files = write_ledger_rows(Path(location), start_ns, database, copies)
                by_day = {day: read_query(paths) for day, paths in files.items()}
                paths = [path for each in files.values() for path in each]
            else:
                place = location if "://" in location else str(Path(location).absolute())
                store = ObjectStore(place)
                found = fetch_objects(
                    store,
                    database,
                    copies,
                    clusters=clusters,
                    wanted=lambda day: day >= first,
                )
                found, merged = merge_raw(database, found, copies)
                create_rows(database, found)
                by_day = _queries_by_day(found, merged)
                paths = [*found.files, *(path for each in merged.values() for path in each)]
                foreign += [f"{location}: {key}" for key in found.foreign]
            for day, query in by_day.items():
                queries.setdefault(day, []).append(query)
            sources.append((location, read_query(paths)))
        _refuse_twice(database, sources)
        days = {day: " UNION ALL BY NAME ".join(queries[day]) for day in sorted(queries)}
        whole = " UNION ALL BY NAME ".join(days.values()) or read_query([])
        database.execute(f"CREATE OR REPLACE VIEW {VIEW} AS {whole}")
        yield RowSources(database, days, tuple(foreign))


def is_ledger_file(location: str) -> bool:
    """Whether a location is the path of a file, so that it is not an archive."""
    return "://" not in location and not Path(location).is_dir()


def _check_exists(location: str) -> None:
    # An empty text would be the present folder.
    if "://" not in location and not (location and Path(location).exists()):
        raise PermanentError(
            f"there is no folder or file {location or repr(location)}; give the folder or the URL "
            "of an archive (podgpu archive --to), or the file of a ledger"
        )


def _refuse_clusters(location: str, clusters: Collection[str]) -> None:
    """Refuse a ledger file in a report on some clusters.

    Raises:
        PermanentError: there are names of clusters.
    """
    if clusters:
        raise PermanentError(
            f"{location} is a ledger file, which does not know its cluster, so --cluster cannot "
            "select it; leave out --cluster or this file"
        )


def _queries_by_day(found: Selection, merged: Mapping[date, Sequence[Path]]) -> dict[date, str]:
    """Return the query of each day's rows. A row is only in objects of its day."""
    files = {day: list(paths) for day, paths in merged.items()}
    for path, text in found.files.items():
        key = parse(text)
        if key is not None:
            files.setdefault(key.day, []).append(path)
    queries = {}
    for day, paths in files.items():
        alone = [path for path in paths if path not in found.overlaps]
        overlapping = [path for path in paths if path in found.overlaps]
        queries[day] = read_query(alone)
        if overlapping:
            rows = read_query(overlapping)
            queries[day] += f" UNION ALL BY NAME SELECT DISTINCT * FROM ({rows})"  # noqa: S608
    return queries


def _refuse_twice(database: Database, sources: Sequence[tuple[str, str]]) -> None:
    """Refuse a ledger that is in two locations, such as its file and its archive.

    Raises:
        PermanentError: a ledger is in two locations.
    """
    if len(sources) < 2:
        return
    database.execute("CREATE OR REPLACE TEMP TABLE locations (place INTEGER, location VARCHAR)")
    parts = []
    for place, (location, query) in enumerate(sources):
        database.execute("INSERT INTO locations VALUES (?, ?)", (place, location))
        parts.append(
            f"SELECT location, cluster, node, ledger FROM ({query}), locations "  # noqa: S608
            f"WHERE place = {place}"
        )
    database.execute(_ORIGINS.format(sources=" UNION ALL ".join(parts)))
    found = database.execute(_TWICE)
    if found:
        ledger, node, (one, other, *_) = found[0]
        raise PermanentError(
            f"the ledger {ledger} of node {node} is in {one} and in {other}: its usage would be "
            "counted twice; give only one of them"
        )
