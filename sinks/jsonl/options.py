"""What can be set about JSON lines."""

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

_OFTEN: Final = Duration.parse("100ms")
_NAMES_OF_STDOUT: Final = re.compile(
    r"/+(?:dev/(?:stdout|fd/0*1)|proc/(?:self|thread-self|[0-9]+)(?:/task/[0-9]+)?/fd/0*1)"
)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the sink `jsonl`."""

    path: Annotated[
        str,
        msgspec.Meta(min_length=1),
        Doc('The file to write, in a folder that is there; "-" for standard output.'),
    ] = STDOUT
    lines: Annotated[
        tuple[Line, ...],
        Doc("Which lines there are: of readings, of holdings that ended, of XID errors."),
    ] = ("readings", "holdings", "xids")
    max_size: Annotated[
        ByteSize,
        Doc("Begin a new file before this one grows larger; 0B leaves that to others."),
    ] = ByteSize.parse("64MiB")
    max_age: Annotated[
        Duration,
        Doc("Begin a new file once this one's first line is so old; 0s never does."),
    ] = Duration.parse("0s")
    keep: Annotated[
        int,
        AtLeast(0),
        AtMost(1000),
        Doc("How many full files to keep beside the one being written."),
    ] = 5
    compress: Annotated[
        Literal["none", "gzip"],
        Doc("What becomes of full files: they stay as they are, or are compressed."),
    ] = "none"
    fsync: Annotated[
        Duration,
        Doc("Flush written lines to the disk so often, and every full file; 0s never does."),
    ] = Duration.parse("0s")
    telemetry_interval: Annotated[
        Duration,
        Doc("How often podgpu's own metrics are written among the readings; 0s never does."),
    ] = Duration.parse("60s")
    queue: Annotated[
        QueueOptions | None,
        Doc("Where lines wait while they can't be written; none drops and counts them."),
    ] = None

    def problems(self) -> Iterable[tuple[str, str]]:
        """Refuse other names of standard output: it can't be rotated, nor a pipe be opened."""
        if _NAMES_OF_STDOUT.fullmatch(os.path.normpath(self.path)):
            yield "path", f'{self.path} is standard output: write "{STDOUT}"'
        if not (self.lines or self.telemetry_interval):
            yield "lines", "nothing is ever written: name some, or leave the sink out"
        if self.path == STDOUT:
            for name, asked in (("compress", self.compress != "none"), ("fsync", self.fsync)):
                if asked:
                    yield name, "standard output is no file: leave this out, or give a path"
        if self.compress != "none" and not (self.max_size or self.max_age):
            text = "no file is ever full: set max_size or max_age, or let who rotates it compress"
            yield "compress", text
        if 0 < self.fsync < _OFTEN:
            yield "fsync", f"{self.fsync} is too often: the least is {_OFTEN}, and 0s never does"

    def exclusive(self) -> Iterable[str]:
        """A file has one writer that rotates it, and lines of two would mix on standard output."""
        path = os.path.normpath(self.path)
        yield "standard output" if path == STDOUT else f"the file {path}"
        if self.queue is not None:
            yield from self.queue.exclusive()
