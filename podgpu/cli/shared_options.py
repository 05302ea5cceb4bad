"""Options that several commands have, and converters for values, the `type` of argparse options.

podgpu imports this module for every command, so this module imports almost nothing.
"""

import argparse
import pkgutil
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from config.value_types import Duration, ListenAddress
from pipeline.component.code_permissions import LIBRARY, OPTION, Allowed

T = TypeVar("T")

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001
"""Type of what `add_subparsers` returns; argparse has no public name for it."""


def argument_type(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Return a converter that shows the text of a ValueError of `parse`, which argparse hides."""

    def convert(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return convert


address = argument_type(ListenAddress.parse)
duration = argument_type(Duration.parse)


def duration_between(least: str, most: str) -> Callable[[str], Duration]:
    """Return a converter for a duration from `least` to `most`."""

    def parse(text: str) -> Duration:
        if not Duration.parse(least) <= (found := Duration.parse(text)) <= Duration.parse(most):
            raise ValueError(f"{text} is not between {least} and {most}")
        return found

    return argument_type(parse)


def matching(pattern: str, problem: str) -> Callable[[str], str]:
    """Return a converter that accepts only texts that match a pattern.

    Args:
        pattern: regular expression that the whole text must match.
        problem: message for other texts; `{}` is replaced by the text.
    """

    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(problem.format(repr(text[:60])))
        return text

    return argument_type(parse)


def add_command(
    commands: Commands,
    name: str,
    function: str,
    contradiction: Callable[[argparse.Namespace], str] = lambda _: "",
    **texts: Any,
) -> argparse.ArgumentParser:
    """Add a command. Its function is imported only when the command runs, to start fast.

    Args:
        commands: the commands of podgpu, or subcommands.
        name: name of the command.
        function: `module:name` of a function that gets the arguments and returns an exit status.
        contradiction: function that returns an error if arguments contradict each other; empty if
            they do not.
        texts: `help` and other arguments of `add_parser`. Without `description`, the help of the
            command begins with the text of `help`.
    """
    summary = texts.get("help", "")
    parser = commands.add_parser(
        name, **{"description": f"{summary[:1].upper()}{summary[1:]}."} | texts
    )

    def run(arguments: argparse.Namespace) -> int:
        if error := contradiction(arguments):
            parser.error(error)
        status: int = pkgutil.resolve_name(function)(arguments)
        return status

    parser.set_defaults(command=run)
    return parser


def add_file(
    group: Any, *names: str, help_text: str, default: Any = None, required: bool = False
) -> None:
    """Add an option whose value is a path, to a parser or a group of one."""
    group.add_argument(
        *names, metavar="FILE", type=Path, default=default, help=help_text, required=required
    )


def add_ledger(parser: argparse.ArgumentParser) -> None:
    """Add the options that select a ledger, for `podgpu.cli.usage.found_ledger`."""
    where = parser.add_argument_group("the ledger")
    add_file(where, "--ledger", help_text="file of the ledger")
    add_file(
        where,
        "-c",
        "--config",
        help_text="configuration file with a ledger sink; default: that of the podgpu running "
        "here, else the one that podgpu run would use",
    )
    where.add_argument("--sink", metavar="NAME", help="name of the ledger sink; default: the first")


def add_allowed(parser: argparse.ArgumentParser) -> None:
    """Add the options that permit external code that a configuration refers to."""
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
    """Return which external code the options of `add_allowed` permit."""
    return Allowed(arguments.allow_everything, frozenset(arguments.allow_libraries))
