"""The parser of podgpu's options: one-line errors that say what was probably meant.

An error never repeats a text that may be secret: at most the name of an unknown option.
"""

import argparse
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from types import MappingProxyType
from typing import Any, Final, NoReturn

from config.message_text import did_you_mean, nearest

UNKNOWN: Final = "unrecognized arguments: "
"""Start of argparse's message about unknown arguments, which `Parser.error` replaces."""

_OPTION_NAME: Final = re.compile(r"--[A-Za-z][-A-Za-z0-9_]*|-[A-Za-z]")
"""Matches an option name, without a value that is appended to it, such as in -pVALUE."""

_NOT_SHOWN: Final = (
    "an argument belongs to no option; it is not shown, because it may be a password"
)
_FEW: Final = 4
"""Maximum number of options with a value that an error lists."""

_MEANT: Final = MappingProxyType(
    {
        "config": "check",
        "generate-config": "schema",
        "holders": "top",
        "ls": "top",
        "metrics": "fields",
        "nvidia-smi": "top",
        "ps": "top",
        "report": "usage",
        "serve": "run",
        "start": "run",
        "stat": "top",
        "stats": "top",
        "status": "top",
        "test": "doctor",
        "validate": "check",
    }
)
"""Commands of other programs, and the command of podgpu that does the same."""

_MEANT_OPTIONS: Final = MappingProxyType({"--cost": "--price"})
"""Names that users try, and the option, or the start of several options, that does the same."""

_ADDRESS: Final = re.compile(r"(?:https?://.*|[A-Za-z0-9.-]+:[0-9]{1,5})", re.DOTALL)
"""Matches an address, with which users begin although it belongs to an option."""

_REPLACEMENTS: Final = (
    (re.compile(r"ignored explicit argument .*", re.DOTALL), "takes no value"),
    (re.compile(r"(invalid \w+ value): .*", re.DOTALL), r"\1"),
)
"""Parts of argparse's messages that repeat the user's input, and their replacements."""


class Parser(argparse.ArgumentParser):
    """An argument parser that differs from argparse's in three ways.

    * Options cannot be abbreviated: a mistyped --pass would be taken for another option.
    * An error is one line: what is wrong, in which command, the most similar valid word, and how to
      get help.
    * An error shows at most the name of the first unknown option: other words may be the password.

    The parsers of subcommands are of this class too.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False} | options)
        self._arguments: Sequence[str] = ()

    def parse_known_args(
        self, args: Iterable[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse arguments as argparse does. argparse calls this method for subcommands too.

        A subcommand reports its unknown arguments itself, so that the error names the subcommand.
        """
        self._arguments = () if args is None else list(args)
        # argparse would take the value of an unknown option for the name of a command, or miss a
        # required option first, and read -config as -c onfig.
        if option := self._first_unknown():
            self.error(UNKNOWN + option)
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(UNKNOWN + " ".join(unknown))
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Print the error without secrets and a hint, and end the process with exit status 2.

        Args:
            message: the message of argparse.
        """
        if message.startswith(UNKNOWN):
            message = self._unknown(message.removeprefix(UNKNOWN))
        for pattern, replacement in _REPLACEMENTS:
            message = pattern.sub(replacement, message)
        see = " See" if message.endswith("?") else "; see"
        self.exit(2, f"{self.prog}: error: {message}{see} {self.prog} --help\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Check a value of an option with `choices`, or the name of a command.

        Raises:
            argparse.ArgumentError: the value is none of the choices.
        """
        if action.choices is None or value in action.choices:
            return
        choices = list(action.choices)
        if not isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - no public name
            raise argparse.ArgumentError(action, not_one_of(value, choices))
        listed = f"the commands are {', '.join(choices)}"
        meant = _MEANT.get(value, "")
        hint = (
            f'did you mean "{meant}"?'
            if meant in choices
            else did_you_mean(value, [*choices, *self._names()], listed)
        )
        raise argparse.ArgumentError(None, f"there is no such command; {hint}")

    def _unknown(self, word: str) -> str:
        """Return the error about an unknown argument.

        Args:
            word: the argument, or several that are separated by blanks.
        """
        names = list(self._names())
        typed = word.split(" ", 1)[0].partition("=")[0]
        # An option of several letters with one dash: -listen.
        found = None if f"-{typed}" in names else _OPTION_NAME.match(word)
        name = typed if f"-{typed}" in names else found[0] if found is not None else ""
        if not name:
            if "--url" in names and _ADDRESS.fullmatch(typed):
                return "an address belongs to no option: give it as --url"
            return _NOT_SHOWN + self._values_hint()
        owners = [other.prog for other in self._below() if name in other._option_string_actions]  # noqa: SLF001
        if owners:
            hint = f"write it after {max(owners, key=self._is_named)}"
        else:
            # Without dashes, because they make all options similar.
            bare = {each.lstrip("-"): each for each in names if each.startswith("--")}
            guess = nearest(name.lstrip("-"), bare)
            meant = _MEANT_OPTIONS.get(name, name)
            # The start of several options: the most similar one is not more probable.
            begun = [each for each in names if each.startswith(f"{meant}-")]
            guesses = begun if len(begun) > 1 else [bare[guess]] if guess else begun
            listed = " or ".join([f'"{each}"' for each in guesses])
            hint = f"did you mean {listed}?" if listed else ""
        return f"there is no option {name}" + (f"; {hint}" if hint else "")

    def _is_named(self, prog: str) -> bool:
        return prog.rpartition(" ")[2] in self._arguments

    def _values_hint(self) -> str:
        """Return the options that have a value, if they are few; else an empty text."""
        valued = [
            f"{action.option_strings[0]} {action.metavar}"
            for action in self._actions
            if action.option_strings and action.metavar and action.help != argparse.SUPPRESS
        ]
        few = 0 < len(valued) <= _FEW
        return f"; options with a value: {', '.join(valued)}" if few else ""

    def _names(self) -> Iterator[str]:
        """Yield the names of the options that the help shows."""
        for action in self._actions:
            if action.help != argparse.SUPPRESS:
                yield from action.option_strings

    def _below(self) -> Iterator["Parser"]:
        """Yield the parsers of the subcommands."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - no public name
                yield from action.choices.values()

    def _first_unknown(self) -> str:
        """Return the unknown option before the first positional argument; empty if none.

        A request for help ends the search.
        """
        words = iter(self._arguments)
        for word in words:
            if not word.startswith("-") or word in ("-", "--"):
                break
            name, equals, _ = word.partition("=")
            action = self._option_string_actions.get(name)
            if action is None:
                if word[:2] not in self._option_string_actions or f"-{name}" in self._names():
                    return word
            elif action.dest == "help":
                break
            elif action.nargs != 0 and not equals:
                next(words, None)
        return ""


def not_one_of(word: str, names: Collection[str]) -> str:
    """Return the error about a word that is none of a few valid names. It doesn't repeat the word.

    Args:
        word: what the user wrote.
        names: the valid names.
    """
    hint = did_you_mean(word, names)
    return f"write one of {', '.join(names)}" + (f"; {hint}" if hint else "")
