"""The sink `textfile`."""

import dataclasses
import errno
import stat
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final, Self

from pipeline.base.errors import PermanentError, TransientError
from pipeline.base.telemetry import FamilyPoints
from pipeline.component.contracts import SinkContext, SinkInbox
from pipeline.component.snapshot_waiter import Arrivals
from pipeline.component.warnings import warn
from pipeline.exposition.renderer import PageRenderer
from pipeline.exposition.text_format import Format, tail
from pipeline.files.atomic_replace import AtomicFile, SweptError, refusal
from pipeline.files.file_thread import FileThread
from pipeline.model import NS
from sinks.textfile.options import Options

_PREFIX: Final = "podgpu_"
_MOUNT_POINT: Final = "is a mount point and can't be replaced: mount its folder instead"


def _renamed(families: Iterable[FamilyPoints]) -> Iterator[FamilyPoints]:
    """Yield podgpu's own families, each with a name that begins with `podgpu_`.

    node_exporter adds the file to its own page, where it has families such as
    `process_start_time_seconds` about itself. It refuses a series that is there twice.
    """
    for family, points in families:
        is_prefixed = family.name.startswith(_PREFIX)
        name = family.name if is_prefixed else _PREFIX + family.name
        yield dataclasses.replace(family, name=name), points


class TextfileSink:
    """Writes a page with the metrics of the newest snapshot to a file, once per `interval`.

    Args:
        options: see `docs/sinks/textfile.md`.
        ctx: context of the sink, from the runtime.
    """

    def __init__(self, options: Options, ctx: SinkContext) -> None:
        self._options = options
        self._ctx = ctx
        self._renderer = PageRenderer(options, ctx.plan, ctx.node, ctx.meter)
        self._path = options.path
        self._file = AtomicFile(options.path, durable=False)
        self._written = False
        self._thread = FileThread(f"podgpu-sink-{ctx.name}", options.path, partial(warn, ctx))
        self._due_ns = 0

    async def __aenter__(self) -> Self:
        """Check the path, and remove temporary files of an earlier run."""
        await self._thread.open(self._prepare)
        self._due_ns = 0
        return self

    async def __aexit__(self, *_: object) -> None:
        """Wait a limited time for the current write; then remove the file, unless `keep` is set.

        A file that this sink did not write stays.
        """
        try:
            await self._thread.close(None if self._options.keep else self._remove)
        except OSError as error:
            warn(
                self._ctx,
                "%s: can't be removed: %s; delete it, or node_exporter keeps serving its values",
                self._options.path,
                error.strerror,
            )

    async def run(self, inbox: SinkInbox) -> None:
        """Write until the inbox ends. If `keep` is set, write the last snapshot too."""
        unwritten = True
        async with Arrivals(inbox, self._ctx.latest()) as arrivals:
            self._renderer.show(arrivals.latest)
            while not arrivals.ended:
                if self._seconds_left() <= 0:
                    await self._write()
                    unwritten = False
                if await arrivals.wait(self._seconds_left()):
                    self._renderer.show(arrivals.latest)
                    unwritten = True
        if unwritten and self._options.keep:
            await self._write()

    def _seconds_left(self) -> float:
        """Return the seconds until the next write is due."""
        return max((self._due_ns - self._ctx.clock.now().mono_ns) / NS, 0)

    async def _write(self) -> None:
        form = Format.TEXT
        page = self._renderer.body(form) + tail(form, _renamed(self._ctx.telemetry()))
        self._due_ns = self._ctx.clock.now().mono_ns + self._options.interval.ns
        await self._thread.call(partial(self._replace, page))

    def _prepare(self) -> None:
        """Check the path, and remove temporary files of an earlier run.

        Raises:
            PermanentError: the path exists and is not a regular file.
            TransientError: the folder does not exist, or can't be read.
        """
        try:
            mode = self._path.lstat().st_mode
        except OSError:
            pass  # sweep() finds out whether the folder is usable
        else:
            if not stat.S_ISREG(mode):
                what = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
                raise PermanentError(f"{self._path}: is {what}; set the path of a file")
        try:
            self._file.sweep()
        except OSError as error:
            raise TransientError(refusal(error, self._path, self._path.parent)) from error

    def _replace(self, page: bytes) -> None:
        """Replace the file by a new page.

        Raises:
            TransientError: the file can't be written.
        """
        try:
            self._file.write(page)
        except SweptError:
            raise TransientError(
                f"{self._path}: another program removed the new file before podgpu could rename "
                "it; make sure that nothing removes files in that folder"
            ) from None
        except OSError as error:
            if error.errno == errno.EBUSY:
                raise TransientError(f"{self._path}: {_MOUNT_POINT}") from error
            raise TransientError(refusal(error, self._path, self._path.parent)) from error
        self._written = True

    def _remove(self) -> None:
        """Remove the file if this sink wrote it."""
        if self._written:
            self._path.unlink(missing_ok=True)
            self._written = False
