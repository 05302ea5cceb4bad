"""Options of `podgpu topology`. All commands import this module, so it imports almost nothing."""

import argparse
from typing import Any, Final

from podgpu.cli.client_options import LOCAL, add_access
from podgpu.cli.shared_options import Commands, add_file, run_later

TOO_FEW: Final = 3
"""Exit status of `best` if there are too few GPUs to choose from."""


def add(commands: Commands) -> None:
    """Add the command to the parser of podgpu."""
    parser = commands.add_parser(
        "topology",
        help="show the topology of the GPUs and who holds them; `topology best` chooses some",
        description="Queries the daemon on this machine. If there is none, reads NVML once.",
    )
    _add_origin(parser, None)
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print JSON, as the daemon's /topology")
    shape.add_argument("--dot", action="store_true", help="print a graph for Graphviz")
    parser.set_defaults(command=run_later("podgpu.cli.topology.command:topology"))

    best = parser.add_subparsers(title="subcommand", metavar="[best]").add_parser(
        "best",
        help="choose the best N GPUs",
        description="Chooses the GPUs that are connected best and leave the best groups for later. "
        f"Exit status {TOO_FEW} if there are too few.",
    )
    # Options before `best` apply too, so that these have no defaults.
    _add_origin(best, argparse.SUPPRESS)
    best.add_argument("-n", dest="count", metavar="N", required=True, help="number of GPUs")
    best.add_argument("--must", metavar="GPUS", default="", help="GPUs that must be chosen")
    best.add_argument(
        "--candidates",
        metavar="GPUS",
        default=None,
        help="GPUs to choose from; default: the free ones",
    )
    best.add_argument(
        "--json",
        action="store_true",
        default=argparse.SUPPRESS,
        help="print JSON, as the daemon's /topology/best",
    )
    best.set_defaults(command=run_later("podgpu.cli.topology.command:choose"))


def _add_origin(parser: argparse.ArgumentParser, default: Any) -> None:
    origin = parser.add_mutually_exclusive_group()
    origin.add_argument("--url", default=default, help=f"address of a daemon, such as {LOCAL}")
    origin.add_argument(
        "--local",
        action="store_true",
        default=default or False,
        help="read NVML; the sources of a configuration report the holders",
    )
    recording = "read the state at the end of a recording"
    add_file(origin, "--recording", help_text=recording, default=default)
    config = "configuration file, for --local"
    add_file(parser, "-c", "--config", help_text=config, default=default)
    add_access(parser, default)
