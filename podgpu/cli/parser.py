"""The argument parser of all commands. Its error messages do not repeat text that may be secret."""

import argparse
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

_OPTION_NAME: Final = re.compile(r"--[A-Za-z][-A-Za-z0-9]*|-[A-Za-z]")
"""An option name, without a value that is appended to it, such as in -pVALUE."""

_UNKNOWN: Final = "unrecognized arguments: "
_REPLACEMENTS: Final = (
    (re.compile(r"invalid choice: .* (?=\(choose from )", re.DOTALL), "invalid choice "),
    (re.compile(r"ignored explicit argument .*", re.DOTALL), "takes no value"),
    (re.compile(r"(invalid \w+ value): .*", re.DOTALL), r"\1"),
)
"""Parts of argparse's messages that repeat user input, and their replacements."""


class Parser(argparse.ArgumentParser):
    """An argument parser that differs from argparse's in two ways.

    * Options cannot be abbreviated: a mistyped --pass would be taken for another option.
    * An error message shows only the first unknown argument, and only its option name: the rest
      may be the password.

    The parsers of subcommands are of this class too.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False} | options)
        self._arguments: Sequence[str] = ()

    def parse_known_args(
        self, args: Iterable[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse arguments as argparse does. argparse calls this method for subcommands too.

        A subcommand rejects its unknown arguments itself, so that its own usage is shown.
        """
        self._arguments = () if args is None else list(args)
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(_UNKNOWN + " ".join(unknown))
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Print the error and end the process with exit status 2.

        Args:
            message: argparse's message.
        """
        if message.startswith(_UNKNOWN):
            super().error(_unknown(message.removeprefix(_UNKNOWN)))
        if "invalid choice" in message and (option := self._first_unknown()):
            super().error(_unknown(option))
        for pattern, replacement in _REPLACEMENTS:
            message = pattern.sub(replacement, message)
        super().error(message)

    def _first_unknown(self) -> str:
        """Return the unknown option before the first positional argument; empty if there is none.

        argparse takes the value of an unknown option for that argument, and reports it first.
        """
        words = iter(self._arguments)
        for word in words:
            if not word.startswith("-") or word in ("-", "--"):
                break
            action = self._option_string_actions.get(word.partition("=")[0])
            if action is None and word[:2] not in self._option_string_actions:
                return word
            if action is not None and action.nargs != 0 and "=" not in word:
                next(words, None)
        return ""


def _unknown(word: str) -> str:
    name = _OPTION_NAME.match(word)
    return _UNKNOWN + (name[0] if name is not None else "an argument that belongs to no option")
