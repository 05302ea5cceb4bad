"""What the command takes. It loads next to nothing: the other commands load it too."""

import argparse
from typing import Final

from config.value_types import Duration, FormatError
from podgpu.cli.client_options import LOCAL, add_access

_LEAST: Final = 0.5
_MOST: Final = 3600.0


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to podgpu's."""
    parser = commands.add_parser(
        "top",
        help="show GPUs and their holders, live",
        description="Asks the daemon on this machine. The key ? shows the others. Where stdout is "
        "no terminal, a table is printed once.",
    )
    parser.add_argument(
        "--url", default=LOCAL, help=f"of a daemon's listener; {LOCAL} if none is given"
    )
    parser.add_argument(
        "--interval",
        metavar="DURATION",
        type=_interval,
        default=_interval("2s"),
        help="how often it is asked (2s)",
    )
    parser.add_argument("--once", action="store_true", help="print a table once, and end")
    add_access(parser)
    parser.set_defaults(command=_top)


def _interval(text: str) -> Duration:
    try:
        interval = Duration.parse(text)
    except FormatError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if not _LEAST <= float(interval) <= _MOST:
        raise argparse.ArgumentTypeError(f"{text}: from 500ms to 1h")
    return interval


def _top(arguments: argparse.Namespace) -> int:
    from podgpu.cli.top import command

    return command.top(arguments)
