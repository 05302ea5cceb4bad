"""What can be set about JSON lines."""

from typing import Annotated, Final

import msgspec

from config.markers import AtLeast, AtMost, Doc
from config.types import ByteSize, Duration

STDOUT: Final = "-"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the sink `jsonl`."""

    path: Annotated[
        str,
        msgspec.Meta(min_length=1),
        Doc('The file to write, in a folder that is there; "-" for standard output.'),
    ] = STDOUT
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
    telemetry_interval: Annotated[
        Duration,
        Doc("How often podgpu's own metrics are written among the readings; 0s never does."),
    ] = Duration.parse("60s")
