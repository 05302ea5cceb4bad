"""Options of `podgpu top`. All commands import this module, so it imports almost nothing."""

from podgpu.cli.client_options import LOCAL, add_access
from podgpu.cli.shared_options import Commands, duration_between, run_later

_interval = duration_between("500ms", "1h")


def add(commands: Commands) -> None:
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
    parser.set_defaults(command=run_later("podgpu.cli.top.command:top"))
