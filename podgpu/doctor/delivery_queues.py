"""Checks of the queue of each sink.

`queue.folder`: whether the folder is writable, persistent and large enough. `queue.rate`: whether
the sink can send the queue after an outage within `max_rate`.
"""

import contextlib
import os
import re
import tempfile
from functools import partial
from pathlib import Path
from typing import Final

from config.schema import Config
from config.value_types import ByteSize
from pipeline.base.safe_text import line
from pipeline.component.findings import BOTH, WARNS, Check, Finding
from pipeline.delivery.options import QueueOptions
from pipeline.delivery.queue.disk.folder import CURSOR, LOCK, segment_name, segment_numbers
from pipeline.delivery.rate_limits import format_bytes
from pipeline.diagnostics.check_runner import Examination
from pipeline.diagnostics.context import DoctorContext
from pipeline.diagnostics.file_access import (
    access_fix,
    access_problem,
    file_system,
    inaccessible,
    not_replaceable_reason,
)
from pipeline.diagnostics.port_owner import PortOwner
from pipeline.diagnostics.process_lookup import lock_owner

_FOLDER: Final = Check("queue.folder", BOTH)

_VOLATILE: Final = frozenset({"tmpfs", "ramfs"})
_LAYERS: Final = frozenset({"overlay", "aufs", "fuse.fuse-overlayfs"})
_BLOCK: Final = 512
"""Bytes of one block in `st_blocks`; see stat(2)."""

_FIX: Final = (
    "mount a folder of the node's disk (hostPath) that podgpu's user may write to, and set "
    "queue.path to it"
)
_RATE: Final = re.compile(
    rb'^podgpu_sink_produced_bytes_per_second\{sink="([^"\n]*)"\} (\S+)$', re.MULTILINE
)
_RATE_FIX: Final = (
    "raise queue.max_rate (0B for no limit), or let podgpu produce less: longer intervals of the "
    "sources, a shorter list of metrics"
)


def _queues(config: Config) -> dict[str, QueueOptions]:
    """Return the options of each queue, by the name of its sink."""
    found = {name: getattr(sink.options, "queue", None) for name, sink in config.sinks.items()}
    return {name: each for name, each in found.items() if isinstance(each, QueueOptions)}


def examinations(config: Config, ctx: DoctorContext) -> list[Examination]:
    """Return an examination of the folder for each sink with a queue."""
    return [
        Examination(
            f"sink {name}",
            partial(check_folder, options.path, options.max_size, ctx.roots.proc),
            component=True,
        )
        for name, options in _queues(config).items()
    ]


def check_folder(path: Path | None, max_size: ByteSize, proc: Path) -> Finding:
    """Run the check `queue.folder`. Blocking. It writes a file into the folder and removes it."""
    if path is None:
        observed = "not set: data is queued in memory, and lost when podgpu stops"
        return _FOLDER.skip("queue.path", observed)
    if problem := access_problem(path):
        return _FOLDER.failure(str(path), problem, access_fix(path))
    # podgpu creates missing folders, so the nearest existing parent must be writable.
    existing = next(folder for folder in (path, *path.parents) if folder.exists())
    place = str(path) if existing == path else f"{path} (to be created in {existing})"
    if not existing.is_dir():
        return _FOLDER.failure(place, f"{existing} is not a folder", _FIX)
    if refusal := _write_problem(existing):
        return _FOLDER.failure(place, f"not writable: {refusal}", _FIX)
    if problem := _inaccessible_files(path):
        fix = f"chown -R {os.geteuid()} {path}: podgpu ran as another user before"
        return _FOLDER.failure(place, problem, fix)
    if owner := lock_owner(path / LOCK, proc):
        fix = "stop that process, or set another queue.path: each podgpu needs its own folder"
        return _FOLDER.failure(place, f"is in use by {owner}", fix)
    kind = file_system(existing, proc)
    if kind in _VOLATILE:
        observed = f"is on {kind}: queued data is in memory, and lost when the node restarts"
        return _FOLDER.warning(place, observed, _FIX)
    if kind in _LAYERS:
        observed = f"is on {kind}, the container's layer: queued data is lost with the container"
        return _FOLDER.warning(place, observed, _FIX)
    return _room(place, existing, path, max_size, kind)


def _room(subject: str, existing: Path, path: Path, max_size: ByteSize, kind: str) -> Finding:
    space = os.statvfs(existing)
    free, used = space.f_bavail * space.f_frsize, _used(path)
    if free + used < max_size:
        of_queue = f", the queue uses {used >> 20} MiB" if used else ""
        observed = f"{free >> 20} MiB are free{of_queue}: less than queue.max_size ({max_size})"
        return _FOLDER.warning(
            subject, observed, "free space on that disk, or lower queue.max_size"
        )
    on = f" on {kind}" if kind else ""
    return _FOLDER.ok(subject, f"is writable{on}, {free >> 20} MiB are free")


def _used(path: Path) -> int:
    """Return the number of bytes that the files of the queue occupy on the disk."""
    used = 0
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # sent and removed in the meantime
                used += entry.stat(follow_symlinks=False).st_blocks * _BLOCK
    return used


def _inaccessible_files(path: Path) -> str:
    """Return a text about the queue's files that podgpu cannot use; empty if there are none."""
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
    """Write a file into a folder and remove it; return the error, or an empty text."""
    try:
        with tempfile.NamedTemporaryFile(prefix=".podgpu-doctor-", dir=folder) as probe:
            probe.write(b"podgpu doctor\n")
    except OSError as error:
        return os.strerror(error.errno or 0).lower()
    return ""


def check_rates(subject: str, owner: PortOwner, config: Config) -> list[Finding]:
    """Run the check `queue.rate` for each sink with a queue.

    Args:
        subject: address at which podgpu responds, for people.
        owner: the podgpu that responds at this address.
        config: the configuration, with the option `queue.max_rate` of the sinks.
    """
    rates = {
        name.decode("utf-8", "replace"): float(rate) for name, rate in _RATE.findall(owner.metrics)
    }
    return [
        _check_rate(f"{subject}/metrics", line(name), options.max_rate, rates.get(name))
        for name, options in _queues(config).items()
    ]


def _check_rate(subject: str, name: str, most: ByteSize, rate: float | None) -> Finding:
    check = Check("queue.rate", WARNS)
    if not most:
        return check.ok(subject, f"sink {name} has no queue.max_rate")
    if rate is None:
        return check.skip(
            subject,
            f"the data rate of sink {name} is unknown: it is measured after the first minute, or a "
            "password is required",
        )
    rates = f"sink {name} produces {format_bytes(round(rate))}/s, and queue.max_rate is {most}/s"
    if rate * 2 <= most:
        return check.ok(subject, rates)
    effect = "sending the queue takes longer than the outage lasted"
    if rate >= most:
        effect = "after an outage the queue never shrinks, and overflows"
    return check.warning(subject, f"{rates}: {effect}", _RATE_FIX)
