"""From what is configured to a queue."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from pipeline.base.errors import PermanentError, TransientError
from pipeline.delivery.contract import Queue, QueueState, Totals
from pipeline.delivery.options import QueueOptions
from pipeline.delivery.queue.disk.cursor import CursorState, read_cursor
from pipeline.delivery.queue.disk.folder import CURSOR, LockedError
from pipeline.delivery.queue.disk.segments import FolderScan, scan_folder
from pipeline.delivery.queue.disk.settings import KindError
from pipeline.delivery.queue.error_reasons import text_of
from pipeline.delivery.queue.fallback_queue import FallbackQueue
from pipeline.delivery.queue.memory_queue import MemoryQueue
from pipeline.model import Instant

_TRIES: Final = 3
_AGAIN: Final = 1.0
"""Seconds after which a folder may be free that is being closed."""


def open_queue(options: QueueOptions, kind: str, now: Callable[[], Instant]) -> Queue:
    """Open the queue that is configured.

    A folder that takes nothing for the time being, as a full disk does, is no error: data waits in
    memory, and `state().writable` is False.

    Args:
        options: what is configured.
        kind: a word for what the records are, that of the sink's kind.
        now: the clocks: `ctx.clock.now`.

    Raises:
        PermanentError: the folder can't be had: another process has it, records of another kind are
            in it, or it can't be one.
        TransientError: this process has it itself.
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
                f"the queue in {options.path} is still being closed by this podgpu, or another of "
                "its sinks has it: each needs a queue.path of its own",
                retry_after=_AGAIN,
            ) from error
        raise PermanentError(
            f"the queue in {options.path} is in use by {error.owner or 'another process'}; end "
            "that, or set another queue.path: each sink of each podgpu needs a folder of its own"
        ) from error
    except KindError as error:
        raise PermanentError(
            f"the queue in {options.path} holds records of {error.found}, and this sink's are of "
            f"{kind}; set another queue.path, or let a sink of the kind {error.found} send them "
            "first and remove the folder then"
        ) from error
    except OSError as error:
        raise PermanentError(
            f"cannot keep a queue in {options.path}: {text_of(error)}; set queue.path to a folder "
            "on a local disk that podgpu may write to"
        ) from error


def inspect(path: Path) -> QueueState:
    """Return what is in the folder of a queue, without opening it: nothing is changed.

    Exact while nobody has the queue; else what was true a moment ago, without the points that are
    in flight from segments that made room.

    Args:
        path: the folder.

    Raises:
        OSError: it can't be read.
    """
    mark, found = _survey(path)
    for _ in range(_TRIES):
        again, found_again = mark, found
        mark, found = _survey(path)
        if mark.generation == again.generation and found.end == found_again.end:
            break
    end = max(found.end, mark.end, mark.position)
    done = mark.acked + sum(mark.rejected.values()) + sum(mark.dropped.values())
    return QueueState(
        totals=Totals(
            appended=done + end - mark.position,
            acked=mark.acked,
            rejected=mark.rejected,
            dropped=mark.dropped,
        ),
        recovered=end - mark.position,
        bytes=sum(segment.size for segment in found.segments),
        oldest_ns=None,
    )


def _survey(path: Path) -> tuple[CursorState, FolderScan]:
    try:
        mark, _ = read_cursor(path / CURSOR)
    except FileNotFoundError:
        mark = None
    found = scan_folder(path, mark.segment if mark else 0)
    first = found.segments[0].first_point if found.segments else 0
    return mark or CursorState(position=first), found
