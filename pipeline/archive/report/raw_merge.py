"""Merges many raw objects of a day into few files, so that queries need less time and memory.

DuckDB keeps the schema of each file of a query in memory: 2 GB for the 24,000 objects that 1,000
nodes write in a day.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Final

from pipeline.archive.database import Database
from pipeline.archive.object_key import RawKey, parse
from pipeline.archive.object_selection import Selection, keys_in_errors
from pipeline.archive.parquet_file import read_query, write_query
from pipeline.archive.row_reading import check_raw

_AT_ONCE: Final = 500


def merge_raw(
    database: Database, found: Selection, folder: Path
) -> tuple[Selection, dict[date, list[Path]]]:
    """Merge the raw objects of a selection whose rows are in no other object.

    Args:
        database: a database.
        found: the selection. Copies of objects that are merged are removed.
        folder: for the merged files.

    Returns:
        The selection of the objects that were not merged, and the merged files by UTC day.

    Raises:
        PermanentError: an object is damaged or too new, or has other rows than its key states.
        TransientError: the disk fails.
    """
    days: dict[date, list[Path]] = {}
    for path, text in found.files.items():
        key = parse(text)
        if isinstance(key, RawKey) and path not in found.overlaps:
            days.setdefault(key.day, []).append(path)
    merged: dict[date, list[Path]] = {}
    left: Mapping[Path, str] = dict(found.files)
    for day, paths in days.items():
        if len(paths) <= _AT_ONCE:
            continue
        for start in range(0, len(paths), _AT_ONCE):
            files = {path: found.files[path] for path in paths[start : start + _AT_ONCE]}
            target = folder / f"{day}-{start:06}.parquet"
            with keys_in_errors(files):
                check_raw(database, files)
                write_query(database, read_query(list(files)), target)
            merged.setdefault(day, []).append(target)
            for path in files:
                path.unlink()
        left = {path: key for path, key in left.items() if path not in set(paths)}
    return replace(found, files=left), merged
