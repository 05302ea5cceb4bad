"""What the command takes. It loads next to nothing: the other commands load it too."""

import argparse
from pathlib import Path
from typing import Any

from podgpu.cli.client_options import LOCAL, add_access
from podgpu.cli.topology import TOO_FEW


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to podgpu's."""
    parser = commands.add_parser(
        "topology",
        help="show how the GPUs are joined and who holds them; `topology best` chooses some",
        description="Asks the daemon on this machine. Without one, NVML is read once.",
    )
    _where(parser, None)
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="as the daemon's /topology has it")
    shape.add_argument("--dot", action="store_true", help="for Graphviz")
    parser.set_defaults(command=_topology)

    best = parser.add_subparsers(title="instead", metavar="[best]").add_parser(
        "best",
        help="choose the best N GPUs",
        description="Chooses the GPUs that are joined best and leave the best groups. Exit status "
        f"{TOO_FEW} if there are too few.",
    )
    # What stands before `best` counts as well.
    _where(best, argparse.SUPPRESS)
    best.add_argument("-n", dest="count", metavar="N", required=True, help="how many")
    best.add_argument("--must", metavar="GPUS", default="", help="have to be among them")
    best.add_argument(
        "--candidates", metavar="GPUS", default=None, help="to choose from; else the free ones"
    )
    best.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="as /topology/best has it"
    )
    best.set_defaults(command=_best)


def _where(parser: argparse.ArgumentParser, default: Any) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--url", default=default, help=f"of a daemon's listener, such as {LOCAL}")
    where.add_argument(
        "--local",
        action="store_true",
        default=default or False,
        help="read NVML; a configuration's sources tell of holders",
    )
    where.add_argument(
        "--recording", metavar="FILE", type=Path, default=default, help="what a recording ends with"
    )
    parser.add_argument(
        "-c",
        "--config",
        metavar="FILE",
        type=Path,
        default=default,
        help="configuration file, for --local",
    )
    add_access(parser, default)


def _topology(arguments: argparse.Namespace) -> int:
    from podgpu.cli.topology import command

    return command.topology(arguments)


def _best(arguments: argparse.Namespace) -> int:
    from podgpu.cli.topology import command

    return command.choose(arguments)
