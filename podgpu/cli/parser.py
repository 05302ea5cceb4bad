"""Reads a command line, and repeats no word of it that may be a secret in the wrong place."""

import argparse
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

_NAME: Final = re.compile(r"--[A-Za-z][-A-Za-z0-9]*|-[A-Za-z]")
"""An option's name, without a value that stands behind it, such as in -pVALUE."""

_UNKNOWN: Final = "unrecognized arguments: "
_CUT: Final = (
    (re.compile(r"invalid choice: .* (?=\(choose from )", re.DOTALL), "invalid choice "),
    (re.compile(r"ignored explicit argument .*", re.DOTALL), "takes no value"),
    (re.compile(r"(invalid \w+ value): .*", re.DOTALL), r"\1"),
)
"""What the library repeats, and what is said instead."""


class Parser(argparse.ArgumentParser):
    """The library's, and so are those of the commands below it. It differs in two things.

    * No option may be cut short: a wrong --pass would be taken for another one.
    * Of words that mean nothing the first alone is told, by an option's name: what stands behind
      it may be the password.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False} | options)
        self._words: Sequence[str] = ()

    def parse_known_args(
        self, args: Iterable[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """As the library's does, which calls it for the commands below too.

        What a command doesn't know it refuses itself, so that it is its usage that is shown.
        """
        self._words = () if args is None else list(args)
        found, others = super().parse_known_args(args, namespace)
        if others:
            self.error(_UNKNOWN + " ".join(others))
        return found, others

    def error(self, message: str) -> NoReturn:
        """End the process with exit status 2.

        Args:
            message: the library's.
        """
        if message.startswith(_UNKNOWN):
            super().error(_unknown(message.removeprefix(_UNKNOWN)))
        if "invalid choice" in message and (option := self._first_unknown()):
            super().error(_unknown(option))
        for pattern, instead in _CUT:
            message = pattern.sub(instead, message)
        super().error(message)

    def _first_unknown(self) -> str:
        """Return the unknown option before the first word of its own; empty if there is none.

        The library takes an unknown option's value for that word, and complains of it first.
        """
        words = iter(self._words)
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
    name = _NAME.match(word)
    return _UNKNOWN + (name[0] if name is not None else "a word that belongs to no option")
