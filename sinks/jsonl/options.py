"""Options of the sink `jsonl`."""

import os
import re
from collections.abc import Iterable
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from config.option_markers import AtLeast, AtMost, Doc
from config.value_types import ByteSize, Duration
from pipeline.delivery.options import QueueOptions

STDOUT: Final = "-"

Line: TypeAlias = Literal["readings", "holdings", "xids"]

_MIN_FSYNC: Final = Duration.parse("100ms")
_NAMES_OF_STDOUT: Final = re.compile(
    r"/+(?:dev/(?:stdout|fd/0*1)|proc/(?:self|thread-self|[0-9]+)(?:/task/[0-9]+)?/fd/0*1)"
)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the sink `jsonl`."""

    path: Annotated[
        str,
        msgspec.Meta(min_length=1),
        Doc('File to write, in an existing folder; "-" for standard output.'),
    ] = STDOUT
    lines: Annotated[
        tuple[Line, ...],
        Doc("Which lines to write: readings, ended holdings, XID errors."),
    ] = ("readings", "holdings", "xids")
    max_size: Annotated[
        ByteSize,
        Doc("Start a new file before this one exceeds this size; 0B for never."),
    ] = ByteSize.parse("64MiB")
    max_age: Annotated[
        Duration,
        Doc("Start a new file when this one's first line has this age; 0s for never."),
    ] = Duration.parse("0s")
    keep: Annotated[
        int,
        AtLeast(0),
        AtMost(1000),
        Doc("How many rotated files to keep, in addition to the current one."),
    ] = 5
    compress: Annotated[
        Literal["none", "gzip"],
        Doc("Compression of rotated files."),
    ] = "none"
    fsync: Annotated[
        Duration,
        Doc("How often to flush lines to the disk, and each rotated file; 0s for never."),
    ] = Duration.parse("0s")
    telemetry_interval: Annotated[
        Duration,
        Doc("How often to write podgpu's own metrics; 0s for never."),
    ] = Duration.parse("60s")
    queue: Annotated[
        QueueOptions | None,
        Doc("Queue for lines that can't be written now; without it they are dropped and counted."),
    ] = None

    def problems(self) -> Iterable[tuple[str, str]]:
        """Report options that contradict each other, and other names of standard output.

        Standard output can't be rotated, so podgpu must recognise it.
        """
        if _NAMES_OF_STDOUT.fullmatch(os.path.normpath(self.path)):
            yield "path", f'{self.path} is standard output: use "{STDOUT}"'
        if not (self.lines or self.telemetry_interval):
            yield "lines", "no lines would be written: name some kinds, or remove the sink"
        if self.path == STDOUT:
            for name, is_set in (("compress", self.compress != "none"), ("fsync", self.fsync)):
                if is_set:
                    yield name, "standard output is not a file: remove this option, or set a path"
        if self.compress != "none" and not (self.max_size or self.max_age):
            text = "no file is rotated: set max_size or max_age, or compress where it is rotated"
            yield "compress", text
        if 0 < self.fsync < _MIN_FSYNC:
            yield "fsync", f"{self.fsync} is too often: the minimum is {_MIN_FSYNC}; 0s is never"

    def exclusive(self) -> Iterable[str]:
        """Return the resources that only one sink may use: the file or standard output, the queue.

        Two sinks would both rotate the file, and would mix their lines on standard output.
        """
        path = os.path.normpath(self.path)
        yield "standard output" if path == STDOUT else f"the file {path}"
        if self.queue is not None:
            yield from self.queue.exclusive()
