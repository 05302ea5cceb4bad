"""An in-memory DuckDB database that reads and writes Parquet files.

This is the only module that imports duckdb. It loads no extension from the network or the disk.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import duckdb

from pipeline.base.errors import PermanentError, TransientError
from pipeline.base.safe_text import line, without_control_characters

MEMORY_MB: Final = 512
"""Default memory limit of a database in mebibytes. What does not fit goes to the folder."""


class Database:
    """An open database; `open_database` makes it."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, memory_mb: int) -> None:
        self._connection = connection
        self._memory_mb = memory_mb

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run statements and return the rows of the last one.

        Args:
            sql: the statements.
            parameters: values for the `?` of the statement; with them, only one is possible.

        Raises:
            TransientError: a file cannot be read or written.
            PermanentError: the memory limit is too low, a file is damaged, or a sum is too large.
        """
        with self._errors():
            return self._connection.execute(sql, list(parameters)).fetchall()

    def stream(
        self, sql: str, parameters: Sequence[object] = (), size: int = 10_000
    ) -> Iterator[list[tuple[Any, ...]]]:
        """Run a statement and yield its rows in lists of up to `size`, with bounded memory.

        No other statement can run before the end. The errors are those of `execute`.
        """
        with self._errors():
            result = self._connection.execute(sql, list(parameters))
            while found := result.fetchmany(size):
                yield found

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except duckdb.OutOfMemoryException as error:
            raise PermanentError(
                f"DuckDB needs more than the limit of {self._memory_mb} MiB of memory, or more "
                f"space for temporary files: {_reason(error)}"
            ) from error
        except duckdb.IOException as error:
            raise TransientError(f"DuckDB cannot read or write a file: {_reason(error)}") from error
        except duckdb.Error as error:
            raise PermanentError(f"DuckDB cannot do this: {_reason(error)}") from error


@contextmanager
def open_database(
    folder: Path, *, memory_mb: int = MEMORY_MB, threads: int = 1
) -> Iterator[Database]:
    """Open a database for the context.

    Args:
        folder: for temporary files, if the memory is not sufficient. It must exist.
        memory_mb: memory limit of DuckDB in mebibytes.
        threads: number of threads. With one, the bytes of a written file depend only on its rows
            and the release of DuckDB.
    """
    connection = duckdb.connect(
        ":memory:",
        config={
            "memory_limit": f"{memory_mb}MiB",
            "threads": threads,
            "temp_directory": str(folder),
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
        },
    )
    try:
        connection.execute("SET TimeZone = 'UTC'")
        yield Database(connection, memory_mb)
    finally:
        connection.close()


def literal(value: str) -> str:
    """Return a text as an SQL literal, for statements in which DuckDB takes no parameters."""
    return "'" + value.replace("'", "''") + "'"


def path_list(paths: Sequence[Path]) -> str:
    """Return paths as an SQL list. DuckDB expands patterns in paths: these must have none.

    Raises:
        PermanentError: a path has a character of a pattern.
    """
    for path in paths:
        if found := re.search(r"[*?\[\]{}]", str(path)):
            raise PermanentError(
                f"DuckDB cannot use the folder {path.parent}, because its name has the character "
                f"{found[0]}; set TMPDIR to another folder"
            )
    return "[" + ", ".join(literal(str(path)) for path in paths) + "]"


def _reason(error: BaseException) -> str:
    return line(without_control_characters(str(error)))
