"""Options that permit external code that a configuration refers to."""

import argparse
from pathlib import Path

from pipeline.component.code_permissions import LIBRARY, OPTION, Allowed


def add_allowed(parser: argparse.ArgumentParser) -> None:
    """Add the options to a command that runs or inspects what a configuration names."""
    group = parser.add_argument_group("external code that the configuration refers to")
    group.add_argument(
        OPTION,
        dest="allow_everything",
        action="store_true",
        help="allow all of it: the credential programs of a kubeconfig, and the library of "
        "hostengine; then, whoever can write these files can run code as podgpu",
    )
    group.add_argument(
        LIBRARY,
        dest="allow_libraries",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="load this library if the configuration names it; can be given several times",
    )


def allowed_of(arguments: argparse.Namespace) -> Allowed:
    """Return what these options allow."""
    return Allowed(arguments.allow_everything, frozenset(arguments.allow_libraries))
