"""Writes what is closed in a ledger to its archive, once. It can be killed at any time."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

from pipeline.base.clock import SystemClock
from pipeline.base.errors import ComponentError, PermanentError, TransientError
from pipeline.ledger.archive_backlog import read_backlog
from pipeline.ledger.archive_open import archive_lock, node_name, open_for_sealing
from pipeline.ledger.file_open import CorruptError, ForeignError, LedgerError, ledger_errors
from pipeline.ledger.outbox import OutboxObject, first_object, remove_object
from pipeline.ledger.sealing import note_written, seal
from pipeline.model import NS
from podgpu.cli.terminal_text import complain, lines
from podgpu.cli.usage.found_ledger import found_ledger

_MEMORY_MB: Final = 128
"""Memory limit of DuckDB, which writes at most some thousand rows at a time."""

_Put: TypeAlias = Callable[[OutboxObject], Any]


def write(arguments: argparse.Namespace) -> int:
    """Seal what is closed, write it to the archive, and return 0.

    Args:
        arguments: options of `podgpu archive`.

    Raises:
        TransientError: the ledger or the archive cannot be used now.
        PermanentError: the ledger is damaged, or the archive refuses the write.
        ConfigError: the configuration that names the ledger is invalid.
    """
    path = found_ledger(arguments, "archive")
    try:
        with (
            archive_lock(path),
            ledger_errors(path),
            closing(open_for_sealing(path)) as connection,
            ExitStack() as stack,
        ):
            node = arguments.node or node_name(connection)
            if not node:
                raise PermanentError(f"{path} has no name of a node yet: give it as --node")
            now_ns = SystemClock().now().wall_ns
            earlier = read_backlog(connection, now_ns)
            if earlier is not None and earlier.location not in ("", arguments.to):
                _warn_of_another_location(path, earlier.location, arguments.to)
            objects = rows = 0
            put: _Put | None = None
            while True:
                while (pending := first_object(connection)) is not None:
                    with _kept(path):
                        # Most of the memory is for this, and often there is nothing to write.
                        put = put or stack.enter_context(_opened(arguments.to))
                        put(pending)
                    remove_object(connection, pending)
                    objects, rows = objects + 1, rows + len(pending.rows)
                if not seal(connection, arguments.cluster, node, now_ns):
                    break
            note_written(connection, arguments.to if objects else None, now_ns)
    except LedgerError as error:
        invalid = isinstance(error, CorruptError | ForeignError)
        raise (PermanentError if invalid else TransientError)(str(error)) from error
    what = f"{rows} rows in {objects} objects" if objects else "nothing new"
    complain(lines(f"podgpu: wrote {what} of {path} to {arguments.to}"))
    return 0


@contextmanager
def _opened(location: str) -> Iterator[_Put]:
    """Open the archive; yield a function that writes an object."""
    from pipeline.archive.database import open_database
    from pipeline.archive.object_store import ObjectStore
    from pipeline.archive.raw_object import put_rows
    from pipeline.archive.work_folder import work_folder

    store = ObjectStore(location)
    now_s = SystemClock().now().wall_ns / NS
    with (
        work_folder("podgpu-archive-", now_s) as folder,
        open_database(folder, memory_mb=_MEMORY_MB) as database,
    ):
        yield lambda pending: put_rows(store, database, pending.rows, folder)


@contextmanager
def _kept(path: Path) -> Iterator[None]:
    """Add to an error that the data is kept.

    Raises:
        TransientError, PermanentError: as in the context.
    """
    try:
        yield
    except ComponentError as error:
        text = f"{error}. The rows stay in {path} until they are written"
        raise type(error)(text) from error


def _warn_of_another_location(path: Path, earlier: str, location: str) -> None:
    complain(
        lines(
            f"podgpu: {path} was written to {earlier} before. {location} gets only the later "
            "usage: copy the objects of the earlier location to it"
        )
    )
