"""Options of `podgpu top`. All commands import this module, so it imports almost nothing."""

import argparse
from typing import Final

from config.value_types import Duration, FormatError
from podgpu.cli.client_options import LOCAL, add_access

_MIN_SECONDS: Final = 0.5
_MAX_SECONDS: Final = 3600.0


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser of podgpu."""
    parser = commands.add_parser(
        "top",
        help="show GPUs and their holders, live",
        description="Queries the daemon on this machine. The key ? lists the other keys. If stdout "
        "is not a terminal, prints a table once.",
    )
    parser.add_argument("--url", default=LOCAL, help=f"address of a daemon (default {LOCAL})")
    parser.add_argument(
        "--interval",
        metavar="DURATION",
        type=_interval,
        default=_interval("2s"),
        help="interval of the queries (default 2s)",
    )
    parser.add_argument("--once", action="store_true", help="print a table once, and exit")
    add_access(parser)
    parser.set_defaults(command=_top)


def _interval(text: str) -> Duration:
    try:
        interval = Duration.parse(text)
    except FormatError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if not _MIN_SECONDS <= float(interval) <= _MAX_SECONDS:
        raise argparse.ArgumentTypeError(f"{text} is not between 500ms and 1h")
    return interval


def _top(arguments: argparse.Namespace) -> int:
    from podgpu.cli.top import command

    return command.top(arguments)
