"""Opens the configured queue, and inspects a queue's folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from pipeline.base.errors import PermanentError, TransientError
from pipeline.delivery.contract import Queue, QueueState, Totals
from pipeline.delivery.options import QueueOptions
from pipeline.delivery.queue.disk.cursor import CursorState, read_cursor
from pipeline.delivery.queue.disk.folder import CURSOR, KindError, LockedError
from pipeline.delivery.queue.disk.segments import FolderScan, scan_folder
from pipeline.delivery.queue.error_reasons import text_of
from pipeline.delivery.queue.fallback_queue import FallbackQueue
from pipeline.delivery.queue.memory_queue import MemoryQueue
from pipeline.model import Instant

_TRIES: Final = 3
_RETRY_SECONDS: Final = 1.0
"""Seconds after which a folder that is being closed may be free."""


def open_queue(options: QueueOptions, kind: str, now: Callable[[], Instant]) -> Queue:
    """Open the configured queue.

    A folder that can't be written for now, as on a full disk, is not an error: data is kept in
    memory, and `state().writable` is False.

    Args:
        options: options of the queue.
        kind: kind of the records: the kind of the sink.
        now: the clocks: `ctx.clock.now`.

    Raises:
        PermanentError: another process uses the folder, it holds records of another kind, or it
            can't hold a queue.
        TransientError: this process uses the folder.
    """
    if options.path is None:
        return MemoryQueue(int(options.max_size))
    try:
        return FallbackQueue(
            options.path,
            int(options.max_size),
            kind=kind,
            fsync_ns=options.fsync.ns,
            now=now,
        )
    except LockedError as error:
        if error.own_process:
            raise TransientError(
                f"the queue in {options.path} is in use by this podgpu: it is still closing, or "
                "another sink uses it; each sink needs its own queue.path",
                retry_after=_RETRY_SECONDS,
            ) from error
        raise PermanentError(
            f"the queue in {options.path} is in use by {error.owner or 'another process'}; stop "
            "that process, or set another queue.path: each sink of each podgpu needs its own folder"
        ) from error
    except KindError as error:
        raise PermanentError(
            f"the queue in {options.path} holds records of the kind {error.found}, and this sink "
            f"has the kind {kind}; set another queue.path, or let a sink of the kind {error.found} "
            "send them first and then remove the folder"
        ) from error
    except OSError as error:
        raise PermanentError(
            f"cannot keep a queue in {options.path}: {text_of(error)}; set queue.path to a folder "
            "on a local disk that podgpu may write to"
        ) from error


def inspect(path: Path) -> QueueState:
    """Return the state of the queue in a folder, without opening it. Nothing is changed.

    Exact while no process uses the queue. Otherwise it may be outdated, and lacks the points in
    flight whose segments were removed to make room.

    Args:
        path: the folder.

    Raises:
        OSError: it can't be read.
    """
    cursor, found = _scan(path)
    for _ in range(_TRIES):
        cursor_before, found_before = cursor, found
        cursor, found = _scan(path)
        if cursor.generation == cursor_before.generation and found.end == found_before.end:
            break
    end = max(found.end, cursor.end, cursor.position)
    done = cursor.acked + sum(cursor.rejected.values()) + sum(cursor.dropped.values())
    return QueueState(
        totals=Totals(
            appended=done + end - cursor.position,
            acked=cursor.acked,
            rejected=cursor.rejected,
            dropped=cursor.dropped,
        ),
        recovered=end - cursor.position,
        bytes=sum(segment.size for segment in found.segments),
        oldest_ns=None,
    )


def _scan(path: Path) -> tuple[CursorState, FolderScan]:
    try:
        cursor, _ = read_cursor(path / CURSOR)
    except FileNotFoundError:
        cursor = None
    found = scan_folder(path, cursor.segment if cursor else 0)
    first = found.segments[0].first_point if found.segments else 0
    return cursor or CursorState(position=first), found
