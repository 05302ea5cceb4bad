"""`podgpu completion`: print a shell's completion script, made from podgpu's own parser.

The script has all commands, options and choices as text. The shell does not run podgpu to complete
a word.
"""

import argparse
from collections.abc import Iterator
from typing import Any

from podgpu.cli.arguments import DCGM_COMMAND
from podgpu.cli.dcgm_exporter.option_table import OPTIONS, TYPES
from podgpu.cli.terminal_text import EXIT_UNWRITTEN, put


def completion(arguments: argparse.Namespace) -> int:
    """`podgpu completion SHELL`: print the script and return the exit status."""
    # The module of the parser imports this one when the command runs.
    from podgpu.cli.commands import command_parser

    text = script(command_parser(), arguments.shell)
    return 0 if put(text, "podgpu completion: the script") else EXIT_UNWRITTEN


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the completion script of a parser.

    Args:
        parser: podgpu's parser; it is changed and must not parse arguments afterwards.
        shell: bash, zsh or fish.
    """
    import shtab

    _add_dcgm_options(parser)
    for each in _parsers(parser):
        for action in each._actions:  # noqa: SLF001 - no public name
            # There is nothing to complete, and with shtab's form of these zsh completes no option.
            if not action.option_strings and action.choices is None:
                action.help = argparse.SUPPRESS
            # A list of commands shows one line for each: the text of the help.
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
                for choice in action._choices_actions:  # noqa: SLF001
                    action.choices[choice.dest].description = choice.help
            if action.metavar == "FILE":
                # shtab reads this attribute.
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    return shtab.complete(parser, shell=shell).rstrip("\n")


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield a parser and the parsers of its commands."""
    yield parser
    for action in parser._actions:  # noqa: SLF001 - no public name
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for below in action.choices.values():
                yield from _parsers(below)


def _add_dcgm_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `podgpu dcgm-exporter`, which its own parser parses."""
    (owner,) = [each for each in _parsers(parser) if each.prog.endswith(f" {DCGM_COMMAND}")]
    for option in OPTIONS:
        names = [f"--{option.name}", *([f"-{option.short}"] if option.short else [])]
        file = str(option.default).startswith("/")
        kind: dict[str, Any] = (
            {"action": "store_true"}
            if option.value_type is bool
            else {"metavar": "FILE" if file else TYPES[option.value_type].upper()}
        )
        owner.add_argument(*names, help=option.why.replace("%", "%%") or None, **kind)
