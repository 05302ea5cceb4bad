"""Makes a view of all rows of an archive, each once, from copies of its effective objects."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pipeline.archive.database import Database
from pipeline.archive.object_key import RawKey, parse
from pipeline.archive.object_selection import Selection, keys_in_errors
from pipeline.archive.parquet_file import read_metadata, read_query
from pipeline.archive.row_checks import IS_VALID
from pipeline.base.errors import PermanentError

VIEW: Final = "archive_rows"
"""Name of the view that `create_rows` makes."""


def create_rows(database: Database, selection: Selection) -> None:
    """Make the view `archive_rows` with all rows of a selection, each once.

    Columns that an object lacks are NULL. The view reads the files again for each query.

    Raises:
        PermanentError: an object is damaged or too new; its rows are not those that its key
            states; or two objects have different rows for one serial.
        TransientError: a file cannot be read.
    """
    files = selection.files
    with keys_in_errors(files):
        compacted = {p: key for p, key in files.items() if not isinstance(parse(key), RawKey)}
        read_metadata(database, compacted)
        check_raw(database, {p: key for p, key in files.items() if p not in compacted})
        query = rows_query(database, selection)
    database.execute(f"CREATE OR REPLACE VIEW {VIEW} AS {query}")


def rows_query(database: Database, selection: Selection) -> str:
    """Return the query of all rows of a selection, each once.

    Raises:
        PermanentError: two objects have different rows for one serial.
    """
    alone = [path for path in selection.files if path not in selection.overlaps]
    query = read_query(alone)
    if selection.overlaps:
        _refuse_differences(database, selection)
        query = (
            f"{query} UNION ALL BY NAME "  # noqa: S608
            f"SELECT DISTINCT * FROM ({read_query(sorted(selection.overlaps))})"
        )
    return query


def check_raw(database: Database, files: Mapping[Path, str]) -> None:
    """Check that raw objects have the rows that their keys state.

    A node may put objects only below its own prefix. Without this check, its objects could have
    rows of other nodes.

    Args:
        database: a database.
        files: the key of the object by file.

    Raises:
        PermanentError: an object is damaged or too new, or its rows are others.
    """
    read_metadata(database, files)
    expected: dict[str, tuple[object, ...]] = {}
    for path, text in files.items():
        key = parse(text)
        if isinstance(key, RawKey):
            expected[str(path)] = (
                *(key.cluster, key.node, key.ledger, key.day),
                *(key.first, key.last),
                *(key.last - key.first + 1,) * 2,
            )
    found = database.execute(
        "SELECT filename, cluster, node, ledger, day, min(serial), max(serial), "  # noqa: S608
        f"count(DISTINCT serial), count(*), min(serial) FILTER (({IS_VALID}) IS NOT TRUE) "
        f"FROM ({read_query(list(files), names=True)}) "
        "GROUP BY filename, cluster, node, ledger, day"
    )
    seen = {str(name): tuple(values) for name, *values, _ in found}
    for name, values in expected.items():
        if seen.get(name) != values or len(seen) != len(found):
            refused = [str(row[0]) for row in found if tuple(row[1:-1]) != expected[str(row[0])]]
            raise PermanentError(
                f"{files[Path((refused or [name])[0])]} has other rows than its name states: "
                "another program wrote or renamed it; move it to another place"
            )
    for name, *_, serial in found:
        if serial is not None:
            raise PermanentError(
                f"{files[Path(str(name))]} has a row that podgpu does not write, with the serial "
                f"{serial}: a value is missing, or is not of this day; move it to another place"
            )


def different_rows_error(
    objects: Sequence[str], cluster: str, node: str, ledger: str, serial: int
) -> PermanentError:
    """Return the error for objects that have different rows for one serial."""
    return PermanentError(
        f"{' and '.join(objects)} have different rows with the serial {serial} of the ledger "
        f"{ledger} of node {node}, cluster {cluster}: this ledger was replaced by an older copy of "
        "itself, and then continued. Move the objects of one of the two to another place"
    )


def _refuse_differences(database: Database, selection: Selection) -> None:
    key = "cluster, node, ledger, serial"
    rows = read_query(sorted(selection.overlaps), names=True)
    database.execute(f"CREATE OR REPLACE TEMP VIEW overlapping AS {rows}")
    different = database.execute(
        f"SELECT {key} FROM (SELECT DISTINCT * EXCLUDE (filename) FROM overlapping) "  # noqa: S608
        f"GROUP BY {key} HAVING count(*) > 1 ORDER BY {key} LIMIT 1"
    )
    if not different:
        return
    cluster, node, ledger, serial = different[0]
    names = database.execute(
        "SELECT DISTINCT filename FROM overlapping "
        "WHERE cluster = ? AND node = ? AND ledger = ? AND serial = ? ORDER BY filename",
        different[0],
    )
    objects = sorted(selection.files[Path(name)] for (name,) in names)
    raise different_rows_error(objects, cluster, node, ledger, serial)
