"""Opens the configured queue."""

from collections.abc import Callable
from typing import Final

from pipeline.base.errors import PermanentError, TransientError
from pipeline.delivery.options import QueueOptions
from pipeline.delivery.queue.disk.folder import KindError, LockedError, OwnLockError
from pipeline.delivery.queue.disk.shared_state import DiskShared
from pipeline.delivery.queue.error_reasons import text_of
from pipeline.delivery.queue.fallback_queue import FallbackQueue
from pipeline.delivery.queue.memory_queue import MemoryQueue
from pipeline.model import Instant

_RETRY_SECONDS: Final = 1.0
"""Seconds after which a folder that is being closed may be free."""


def open_queue(options: QueueOptions, kind: str, now: Callable[[], Instant]) -> MemoryQueue:
    """Open the configured queue.

    A folder that can't be written for now, as on a full disk, is not an error: records are kept in
    memory, and `state().writable` is False.

    Args:
        options: options of the queue.
        kind: kind of the records: the kind of the sink.
        now: returns the present time, such as `ctx.clock.now`.

    Raises:
        PermanentError: another process uses the folder, it contains records of another kind, or it
            can't contain a queue.
        TransientError: another part of this process uses the folder.
    """
    if options.path is None:
        return MemoryQueue(int(options.max_size))
    try:
        shared = DiskShared(options.path, int(options.max_size), kind, options.fsync.ns, now)
        return FallbackQueue(shared)
    except OwnLockError as error:
        raise TransientError(
            f"the queue in {options.path} is in use by this podgpu: it is still closing, or "
            "another sink uses it; each sink needs its own queue.path",
            retry_after=_RETRY_SECONDS,
        ) from error
    except LockedError as error:
        raise PermanentError(
            f"the queue in {options.path} is {text_of(error)}; stop the other podgpu (the number "
            "of its process is the one within its container), or set another queue.path: each sink "
            "of each podgpu needs its own folder"
        ) from error
    except KindError as error:
        raise PermanentError(
            f"the queue in {options.path} {text_of(error)}, and this sink has the kind {kind}; set "
            "another queue.path, or first let a sink of that kind send these records, and then "
            "remove the folder"
        ) from error
    except OSError as error:
        raise PermanentError(
            f"cannot keep a queue in {options.path}: {text_of(error)}; set queue.path to a folder "
            "on a local disk that podgpu may write to"
        ) from error
