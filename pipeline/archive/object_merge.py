"""Merges Parquet files of the archive with DuckDB, for the compaction."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.archive.database import Database
from pipeline.archive.object_contents import Contents, encode_contents
from pipeline.archive.object_key import RawKey, parse
from pipeline.archive.object_selection import keys_in_errors, read_contents
from pipeline.archive.parquet_file import ORDER, read_metadata, read_query, write_query
from pipeline.archive.row_reading import check_raw, different_rows_error
from pipeline.base.errors import PermanentError


class ParquetMerge:
    """Merges files in a database with one thread. It is the `Merge` of the compaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def contents(self, files: Mapping[Path, str]) -> dict[str, Contents]:
        """Return the contents of compacted objects by key.

        Raises:
            PermanentError: an object is damaged, not podgpu's, or too new.
        """
        return read_contents(self._database, files)

    def combine(self, files: Mapping[Path, str], part: Path) -> None:
        """Write the rows of files to a new file, and check that their rows are those they state.

        Raises:
            PermanentError: a file is damaged or too new, or has other rows than its key states.
            TransientError: the disk fails.
        """
        with keys_in_errors(files):
            raw = {path: key for path, key in files.items() if isinstance(parse(key), RawKey)}
            if raw:
                check_raw(self._database, raw)
            read_metadata(self._database, {p: key for p, key in files.items() if p not in raw})
            write_query(self._database, read_query(list(files)), part)

    def finish(
        self, parts: Sequence[Path], contents: Mapping[str, Contents], whole: Contents, target: Path
    ) -> None:
        """Write the rows of parts to a new file, each row once, with the metadata.

        Raises:
            PermanentError: two objects have different rows for one serial, or rows are missing.
            TransientError: the disk fails.
        """
        rows = read_query(parts)
        if sum(each.rows for each in contents.values()) > whole.rows:
            rows = f"SELECT DISTINCT * FROM ({rows})"  # noqa: S608
            self._refuse_differences(rows, contents)
        write_query(self._database, f"{rows} ORDER BY {ORDER}", target, encode_contents(whole))
        found = {
            (str(cluster), str(node), str(ledger)): int(count)
            for cluster, node, ledger, count in self._database.execute(
                "SELECT cluster, node, ledger, count(DISTINCT serial) "  # noqa: S608
                f"FROM ({read_query([target])}) GROUP BY cluster, node, ledger"
            )
        }
        expected = {
            origin: sum(last - first + 1 for first, last in ranges)
            for origin, ranges in whole.serials.items()
        }
        if found != expected:
            differs = min(o for o in {*found, *expected} if found.get(o) != expected.get(o))
            names = ", ".join(sorted(contents)[:4])
            raise PermanentError(
                f"the merged objects have {found.get(differs, 0)} rows of the ledger {differs[2]} "
                f"of node {differs[1]}, and their names state {expected.get(differs, 0)}; nothing "
                f"was changed; look at {names}"
            )

    def _refuse_differences(self, rows: str, contents: Mapping[str, Contents]) -> None:
        key = "cluster, node, ledger, serial"
        different = self._database.execute(
            f"SELECT {key} FROM ({rows}) GROUP BY {key} "  # noqa: S608
            f"HAVING count(*) > 1 ORDER BY {key} LIMIT 1"
        )
        for cluster, node, ledger, serial in different:
            names = [
                name
                for name, each in contents.items()
                if any(
                    first <= serial <= last
                    for first, last in each.serials.get((cluster, node, ledger), ())
                )
            ]
            raise different_rows_error(sorted(names), cluster, node, ledger, serial)
