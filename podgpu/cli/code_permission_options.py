"""What a command takes to allow the code that its configuration leads to."""

import argparse
from pathlib import Path

from pipeline.component.code_permissions import LIBRARY, OPTION, Allowed


def add_allowed(parser: argparse.ArgumentParser) -> None:
    """Add the options to a command that runs, or looks at, what a configuration names."""
    group = parser.add_argument_group("code that the configuration leads to")
    group.add_argument(
        OPTION,
        dest="allow_everything",
        action="store_true",
        help="run it: the programs that a kubeconfig names for credentials, and the library of "
        "hostengine; whoever may write these files runs code as podgpu then",
    )
    group.add_argument(
        LIBRARY,
        dest="allow_libraries",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="load this library if the configuration names it; may be given again",
    )


def allowed_of(arguments: argparse.Namespace) -> Allowed:
    """Return what a command line with these options allows."""
    return Allowed(arguments.allow_everything, frozenset(arguments.allow_libraries))
