"""Options of `podgpu archive compact`. podgpu imports this module for every command."""

from typing import Final

from config.value_types import ByteSize
from podgpu.cli.shared_options import Commands, add_command, argument_type, duration_between

UNFINISHED: Final = 1
"""Exit status if a day could not be compacted."""

_older_than = duration_between("1h", "365d")


def add_compact(commands: Commands) -> None:
    """Add `podgpu archive compact`."""
    parser = add_command(
        commands,
        "compact",
        "podgpu.cli.archive.compact:compact",
        help="merge the objects of each cluster and day of an archive into one",
        description="Merges the objects of each cluster and closed day into one, and deletes the "
        "objects that it contains. It can be ended or run several times at once without loss. Run "
        "it once a day, on one machine that may list, read, write and delete objects.",
        epilog=f"Exit status {UNFINISHED}: the archive could not be reached, or some days could "
        "not be compacted; the messages name them. Run the command again later.",
    )
    parser.add_argument(
        "location",
        metavar="LOCATION",
        help="the archive: an absolute path, or a URL such as s3://BUCKET/PREFIX, "
        "gs://BUCKET/PREFIX or az://CONTAINER/PREFIX",
    )
    parser.add_argument(
        "--cluster",
        metavar="NAME",
        action="append",
        default=[],
        help="compact only this cluster; can be given several times",
    )
    parser.add_argument(
        "--older-than",
        metavar="DURATION",
        type=_older_than,
        default=_older_than("3h"),
        help="compact a day when this time has passed since its end, UTC (default 3h); objects "
        "that are written later are merged the next time",
    )
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        type=argument_type(_memory),
        default=_memory("512MiB"),
        help="memory limit of DuckDB (default 512MiB); the process needs 200 MiB more. What does "
        "not fit is stored in temporary files, in the folder that the variable TMPDIR names",
    )


def _memory(text: str) -> ByteSize:
    size = ByteSize.parse(text)
    if size < 128 << 20:
        raise ValueError(f"{text} is less than 128MiB")
    return size
