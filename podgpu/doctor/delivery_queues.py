"""Whether queues have a folder that takes data and keeps it."""

import contextlib
import os
import uuid
from functools import partial
from pathlib import Path
from typing import Final

from config.schema import Component, Config
from config.value_types import ByteSize
from pipeline.component.findings import Finding
from pipeline.delivery.options import QueueOptions
from pipeline.delivery.queue.disk.folder import CURSOR, LOCK, segment_name, segment_numbers
from pipeline.diagnostics.check_runner import Examination
from pipeline.diagnostics.check_table import CHECKS
from pipeline.diagnostics.context import DoctorContext, in_thread
from pipeline.diagnostics.file_permissions import inaccessible, not_replaceable_reason
from pipeline.diagnostics.mounts import file_system
from pipeline.diagnostics.path_access import access_fix, access_problem
from pipeline.diagnostics.process_lookup import lock_owner

_VOLATILE: Final = frozenset({"tmpfs", "ramfs"})
_LAYERS: Final = frozenset({"overlay", "aufs", "fuse.fuse-overlayfs"})
_BLOCK: Final = 512
"""Bytes of what `st_blocks` counts."""

_PLACE: Final = "queue.path"
_FIX: Final = (
    "mount a folder of the node's disk (hostPath) that podgpu's user may write to, and set "
    "queue.path to it"
)


def examinations(config: Config, ctx: DoctorContext) -> list[Examination]:
    """Return an examination for each sink that has a queue."""
    return [
        Examination(f"sink {sink.name}", partial(_examine, sink, ctx), component=True)
        for sink in config.sinks.values()
        if isinstance(getattr(sink.options, "queue", None), QueueOptions)
    ]


async def _examine(sink: Component, ctx: DoctorContext) -> list[Finding]:
    options: QueueOptions = sink.options.queue  # type: ignore[attr-defined]
    if options.path is None:
        saw = "none is set: data waits in memory, and ends with podgpu"
        return [CHECKS["queue.folder"].skip(_PLACE, saw)]
    return await in_thread(partial(check_folder, options.path, options.max_size, ctx.roots.proc))


def check_folder(path: Path, max_size: ByteSize, proc: Path) -> list[Finding]:
    """Check `queue.folder`. Blocking; what is written for it is removed."""
    check = CHECKS["queue.folder"]
    if told := access_problem(path):
        return [check.failure(str(path), told, access_fix(path))]
    # podgpu makes what is missing: then the folder above has to take it.
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    place = str(path) if there == path else f"{path} (to be made in {there})"
    if not there.is_dir():
        return [check.failure(place, f"{there} is no folder", _FIX)]
    if refusal := _write_problem(there):
        return [check.failure(place, f"nothing can be written there: {refusal}", _FIX)]
    if told := _inaccessible_files(path):
        mend = f"chown -R {os.geteuid()} {path}: podgpu ran as somebody else before"
        return [check.failure(place, told, mend)]
    if owner := lock_owner(path / LOCK, proc):
        mend = "end that one, or set another queue.path: each podgpu needs a folder of its own"
        return [check.failure(place, f"is in use by {owner}", mend)]
    kind = file_system(there, proc)
    if kind in _VOLATILE:
        saw = f"is on {kind}: what waits there is in memory, and gone when the node restarts"
        return [check.warning(place, saw, _FIX)]
    if kind in _LAYERS:
        saw = f"is on {kind}, the container's own layer: what waits there is gone with it"
        return [check.warning(place, saw, _FIX)]
    return [_room(place, there, path, max_size, kind)]


def _room(subject: str, there: Path, path: Path, max_size: ByteSize, kind: str) -> Finding:
    check, space = CHECKS["queue.folder"], os.statvfs(there)
    free, used = space.f_bavail * space.f_frsize, _used(path)
    if free + used < max_size:
        taken = f", {used >> 20} MiB are the queue's" if used else ""
        saw = f"{free >> 20} MiB are free{taken}, fewer than queue.max_size ({max_size})"
        return check.warning(subject, saw, "make room on that disk, or lower queue.max_size")
    on = f" on {kind}" if kind else ""
    return check.ok(subject, f"takes a file{on}, {free >> 20} MiB are free")


def _used(path: Path) -> int:
    """Return the bytes that the queue has on the disk already."""
    used = 0
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # sent meanwhile
                used += entry.stat(follow_symlinks=False).st_blocks * _BLOCK
    return used


def _inaccessible_files(path: Path) -> str:
    """Return which of the queue's files can't be used, for people; empty if all can."""
    try:
        segments = [path / segment_name(number) for number in segment_numbers(path)]
    except OSError:
        segments = []
    files = [path / LOCK, path / CURSOR, *segments]
    if closed := inaccessible(files):
        more = f" and {len(closed) - 1} more" if len(closed) > 1 else ""
        return f"{closed[0].name}{more} may not be read and written by uid {os.geteuid()}"
    return next(
        (f"{each.name} {why}" for each in files if (why := not_replaceable_reason(each))), ""
    )


def _write_problem(folder: Path) -> str:
    """Write a file and remove it; return what stands in the way, or nothing."""
    probe = folder / f".podgpu-doctor-{uuid.uuid4().hex}"
    try:
        probe.write_bytes(b"podgpu doctor\n")
    except OSError as error:
        return os.strerror(error.errno or 0).lower()
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    return ""
