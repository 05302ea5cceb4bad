"""Parse a command line as Go's flag package does, and the environment as urfave/cli does.

dcgm-exporter parses them in this way: an option has one dash or two, and its value after a blank or
after `=`. The value of a switch can only be after `=`. Parsing stops at the first word that is not
an option: it is a command (`help`, `h`, `version`), or it is ignored with all words after it.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, TypeVar

from config.errors import ConfigError, Problem
from config.message_text import nearest, shown
from podgpu.cli.dcgm_exporter.option_table import BY_NAME, OPTIONS, Option, Value

COMMAND: Final = "podgpu dcgm-exporter"

T = TypeVar("T", str, int, bool, tuple[str, ...])

_INFO_FLAGS: Final = {"h": "help", "help": "help", "v": "version", "version": "version"}
_INFO_COMMANDS: Final = {"h": "help", "help": "help", "version": "version"}
"""Words that are commands. dcgm-exporter has `help` and `h`, as every program of urfave/cli."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The value of an option.

    Attributes:
        value: the value, of the option's type.
        origin: the option, variable or file that set the value, for messages.
    """

    value: Value
    origin: str


class Settings:
    """The effective values of all options.

    Args:
        layers: settings by option name; the first layer that has an option takes precedence.
    """

    def __init__(self, *layers: Mapping[str, Setting]) -> None:
        self._given = {name: found for layer in reversed(layers) for name, found in layer.items()}

    def above(self, lower: Mapping[str, Setting]) -> "Settings":
        """Return these settings; options that they do not set have the values of another layer."""
        return Settings(self._given, lower)

    def below(self, upper: Mapping[str, Setting]) -> "Settings":
        """Return these settings; options that another layer sets have the values of that layer."""
        return Settings(upper, self._given)

    def text(self, name: str) -> str:
        """Return the value of a text option."""
        return self._value(name, str)

    def number(self, name: str) -> int:
        """Return the value of an option whose value is a number."""
        return self._value(name, int)

    def switch(self, name: str) -> bool:
        """Return whether an option is switched on."""
        return self._value(name, bool)

    def list(self, name: str) -> tuple[str, ...]:
        """Return the value of a list option."""
        return self._value(name, tuple)

    def given(self, name: str) -> bool:
        """Return whether the option was set, even if to its default."""
        return name in self._given

    def origin(self, name: str) -> str:
        """Return what set an option; the option's shortest name if nothing set it."""
        found = self._given.get(name)
        return found.origin if found else BY_NAME[name].flags[-1]

    def changed(self) -> Iterator[Option]:
        """Yield the options whose value differs from the default."""
        for option in OPTIONS:
            found = self._given.get(option.name)
            if found is not None and found.value != option.default:
                yield option

    def refused(self, name: str, message: str, hint: str = "") -> ConfigError:
        """Return an error about the value of an option, to be raised."""
        return ConfigError(COMMAND, [Problem(self.origin(name), message, hint)])

    def value(self, name: str) -> Value:
        """Return the value of an option of any type."""
        found = self._given.get(name)
        return found.value if found else BY_NAME[name].default

    def _value(self, name: str, type_: type[T]) -> T:
        value = self.value(name)
        assert isinstance(value, type_)  # noqa: S101 - ensured by the option table
        return value


@dataclass(slots=True)
class Line:
    """A parsed command line.

    Attributes:
        settings: settings by name of the option.
        info: `help` or `version` if an option or a command requests it, else empty.
        ignored: the first word that is not an option, and all words after it.
    """

    settings: dict[str, Setting] = field(default_factory=dict)
    info: str = ""
    ignored: tuple[str, ...] = ()

    def add(self, option: Option, flag: str, value: Value | None) -> None:
        """Set an option, unless the value is None. Lists that are given repeatedly are joined."""
        earlier = self.settings.get(option.name)
        if isinstance(value, tuple) and earlier is not None and isinstance(earlier.value, tuple):
            value = earlier.value + value
        if value is not None:
            self.settings[option.name] = Setting(value, flag)


def read(arguments: Sequence[str]) -> Line:
    """Parse a command line.

    Raises:
        ConfigError: options are unknown, or values are missing or invalid.
    """
    rest, line, problems = list(arguments), Line(), list[Problem]()
    while rest and len(rest[0]) >= 2 and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        flag, equals, text = word.partition("=")
        name = flag.removeprefix("-").removeprefix("-")
        if name in _INFO_FLAGS:
            line.info = line.info or _INFO_FLAGS[name]
            continue
        option = BY_NAME.get(name)
        if option is None:
            # The next word may be the value of the unknown option, so parsing stops.
            problems.append(_unknown(flag, name))
            break
        if not equals and option.value_type is not bool and not rest:
            problems.append(Problem(flag, "the value is missing", f"write {flag} VALUE"))
            break
        if not equals:
            text = "true" if option.value_type is bool else rest.pop(0)
        line.add(option, flag, _checked(option, flag, text, problems))
    if problems:
        raise ConfigError(COMMAND, problems)
    if rest and rest[0] in _INFO_COMMANDS:
        line.info = line.info or _INFO_COMMANDS[rest[0]]
    else:
        line.ignored = tuple(rest)
    return line


def _unknown(flag: str, name: str) -> Problem:
    guess = nearest(name, [*BY_NAME, *_INFO_FLAGS])
    dashes = "--" if len(guess) > 1 else "-"
    hint = f"did you mean {dashes}{guess}?" if guess else f"{COMMAND} --help lists all"
    return Problem(shown(flag)[1:-1], "unknown option", hint)


def variables(env: Mapping[str, str]) -> dict[str, Setting]:
    """Read the options that environment variables set. An empty variable counts as unset.

    Raises:
        ConfigError: values are invalid; the error has all of them.
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
        text.encode()  # bytes that are not UTF-8 appear as lone surrogates
        if "\0" in text:
            raise ValueError(f"{shown(text)} contains a NUL byte")  # noqa: TRY301 - handled below
        return _PARSERS[option.value_type](text)
    except UnicodeEncodeError:
        problems.append(Problem(origin, "the value is not UTF-8", "write it again"))
    except ValueError as error:
        hint = f"write {origin}=true or {origin}=false" if option.value_type is bool else ""
        problems.append(Problem(origin, str(error), hint))
    return None


_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_OCTAL: Final = re.compile(r"([-+]?)0_?([0-7_]+)")
_PART: Final = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_MILLISECONDS: Final = {
    "ns": Fraction(1, 1_000_000),
    "us": Fraction(1, 1_000),
    "µs": Fraction(1, 1_000),
    "μs": Fraction(1, 1_000),
    "ms": Fraction(1),
    "s": Fraction(1_000),
    "m": Fraction(60_000),
    "h": Fraction(3_600_000),
}
_MAX_CHARACTERS: Final = 64


def switch(text: str) -> bool:
    """Parse a switch as Go's ParseBool does; raise ValueError if it is invalid."""
    if text not in _TRUE | _FALSE:
        raise ValueError(f"{shown(text)} is neither true nor false")
    return text in _TRUE


def number(text: str) -> int:
    """Parse an integer as Go does (30000, 0x10, 1_000); raise ValueError if it is invalid."""
    octal = _OCTAL.fullmatch(text)
    try:
        if len(text) > _MAX_CHARACTERS or text.strip() != text:
            raise ValueError(text)  # noqa: TRY301 - one message for all errors
        found = int(f"{octal[1]}0o{octal[2]}" if octal else text, 0)
    except ValueError:
        raise ValueError(f"{shown(text)} is not a whole number") from None
    if not -(2**63) <= found < 2**63:
        raise ValueError(f"{shown(text)} is out of range")
    return found


def _words(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


_PARSERS: Final[dict[type, Callable[[str], Value]]] = {
    str: str,
    int: number,
    bool: switch,
    tuple: _words,
}


def milliseconds(text: str) -> int:
    """Parse a duration in Go's format, such as 1m30s; return milliseconds.

    Raise ValueError if it is not a duration, or not a positive whole number of milliseconds;
    dcgm-exporter refuses these too.
    """
    parts = _PART.findall(text)
    if (
        not text
        or len(text) > _MAX_CHARACTERS
        or "".join(f"{n}{unit}" for n, unit in parts) != text
    ):
        raise ValueError(f"{shown(text)} is not a duration; write for example 30s or 1m30s")
    found = sum((Fraction(n) * _MILLISECONDS[unit] for n, unit in parts), Fraction(0))
    if found <= 0 or found.denominator != 1:
        raise ValueError(f"{shown(text)} is not a whole number of milliseconds, 1 or more")
    return int(found)
