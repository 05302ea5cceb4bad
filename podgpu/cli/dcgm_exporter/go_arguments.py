"""Reads a command line as Go's flag package does, and the environment as urfave/cli does.

That is how dcgm-exporter reads them: one dash or two, a value behind a blank or behind `=`, a
switch with `=` only, and nothing behind the first word that is no option.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from config.errors import ConfigError, Problem
from config.message_text import nearest, shown
from podgpu.cli.dcgm_exporter.go_values import value
from podgpu.cli.dcgm_exporter.option import Option, Type, Value
from podgpu.cli.dcgm_exporter.option_table import BY_NAME, OPTIONS
from podgpu.cli.dcgm_exporter.settings import COMMAND, Setting

_ASKING: Final = {"h": "help", "help": "help", "v": "version", "version": "version"}


@dataclass(slots=True)
class Line:
    """What a command line says.

    Attributes:
        settings: by the name of the option.
        asks: `help`, `version` or nothing.
        ignored: the words behind the first one that is no option, with it.
    """

    settings: dict[str, Setting] = field(default_factory=dict)
    asks: str = ""
    ignored: tuple[str, ...] = ()


def read(arguments: Sequence[str]) -> Line:
    """Read a command line.

    Raises:
        ConfigError: an option that there isn't, or a value that it can't have; tells all of them.
    """
    return _Reader(arguments).line()


class _Reader:
    def __init__(self, arguments: Sequence[str]) -> None:
        self._left = list(arguments)
        self._line = Line()
        self._problems: list[Problem] = []

    def line(self) -> Line:
        while self._left:
            word = self._left[0]
            if len(word) < 2 or not word.startswith("-"):
                break
            del self._left[0]
            if word == "--":
                break
            if not self._option(word):
                # Whether the next word is its value can't be known.
                self._left.clear()
        if self._problems:
            raise ConfigError(COMMAND, self._problems)
        self._line.ignored = tuple(self._left)
        return self._line

    def _option(self, argument: str) -> bool:
        flag, equals, text = argument.partition("=")
        name = flag.removeprefix("-").removeprefix("-")
        if name in _ASKING:
            self._line.asks = self._line.asks or _ASKING[name]
            return True
        option = BY_NAME.get(name)
        if option is None:
            self._unknown(flag, name)
            return False
        if not equals:
            if option.type is Type.SWITCH:
                text = "true"
            elif self._left:
                text = self._left.pop(0)
            else:
                self._problems.append(Problem(flag, "its value is missing", f"write {flag} VALUE"))
                return True
        self._set(option, flag, text)
        return True

    def _set(self, option: Option, flag: str, text: str) -> None:
        found = _checked(option, flag, text, self._problems)
        if found is None:
            return
        before = self._line.settings.get(option.name)
        if isinstance(found, tuple) and before is not None and isinstance(before.value, tuple):
            found = before.value + found
        self._line.settings[option.name] = Setting(found, flag)

    def _unknown(self, flag: str, name: str) -> None:
        guess = nearest(name, [*BY_NAME, *_ASKING])
        dashes = "--" if len(guess) > 1 else "-"
        hint = f"did you mean {dashes}{guess}?" if guess else f"{COMMAND} --help lists all"
        self._problems.append(Problem(shown(flag)[1:-1], "there is no such option", hint))


def variables(env: Mapping[str, str]) -> dict[str, Setting]:
    """Read the environment; a variable that is empty counts as not set.

    Raises:
        ConfigError: a value that an option can't have; tells all of them.
    """
    settings: dict[str, Setting] = {}
    problems: list[Problem] = []
    for option in OPTIONS:
        text = env.get(option.variable, "") if option.variable else ""
        found = _checked(option, option.variable, text, problems) if text else None
        if found is not None:
            settings[option.name] = Setting(found, option.variable)
    if problems:
        raise ConfigError(COMMAND, problems)
    return settings


def _checked(option: Option, origin: str, text: str, problems: list[Problem]) -> Value | None:
    try:
        text.encode()  # what isn't UTF-8 comes with lone surrogates
        if "\0" in text:
            raise ValueError(f"{shown(text)} holds a zero byte")  # noqa: TRY301 - told below
        return value(option.type, text)
    except UnicodeEncodeError:
        problems.append(Problem(origin, "its value is not UTF-8", "write it anew"))
    except ValueError as error:
        hint = f"write {origin}=true or {origin}=false" if option.type is Type.SWITCH else ""
        problems.append(Problem(origin, str(error), hint))
    return None
