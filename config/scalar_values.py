"""Converts the text of a single value to the type of its option."""

import math
import pathlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import yaml
import yaml.resolver

from config.message_text import did_you_mean, shown, type_names
from config.type_shapes import Choice, Scalar
from config.value_types import ByteSize, Duration, FormatError, ListenAddress

_RESOLVER: Final = yaml.resolver.Resolver()
_CORE: Final = "tag:yaml.org,2002:"
_TRUE: Final = frozenset({"yes", "true", "on"})
_INT: Final = re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)\Z")
_FLOAT: Final = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")
_LONGEST_NUMBER: Final = 64
_INT_RANGE: Final = range(-(2**63), 2**64)
_WANTED: Final[dict[type, str]] = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    Duration: f"a duration such as {Duration.example}",
    ByteSize: f"a size such as {ByteSize.example}",
    ListenAddress: 'a listen address such as ":9400"',
    pathlib.Path: "a path",
}


class Refused(ValueError):  # noqa: N818 - a problem of the file, not of the program
    """A value has the wrong type, is not one of the choices, or breaks a bound."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Value:
    """A scalar with its placeholders expanded.

    Attributes:
        text: The text after expansion.
        plain: Whether the text has no quotes in the file. Its YAML type then depends on the text.
        written: The text in the file. Messages show this text instead of an expanded one, because
            the value of a variable may be a secret.
    """

    text: str
    plain: bool
    written: str

    @property
    def expanded(self) -> bool:
        """Whether a placeholder or an escaped ``$${`` changed the text."""
        return self.text != self.written

    @property
    def tag(self) -> str:
        """The type according to YAML 1.1: null, bool, int, float, timestamp or str.

        Quoted values, and values of all other types, count as str.
        """
        if not self.plain:
            return "str"
        tag = _RESOLVER.resolve(  # type: ignore[no-untyped-call]
            yaml.ScalarNode, self.text, (True, False)
        )
        name = str(tag).removeprefix(_CORE)
        return name if name in type_names else "str"

    @property
    def null(self) -> bool:
        """Whether the value is empty or null in the file; a text from a variable is never null."""
        return self.tag == "null" and not (self.expanded and self.text)

    def describe(self) -> str:
        """Return a description of the value for a message."""
        if self.expanded:
            return f"the value of {shown(self.written)}"
        if self.tag == "null":
            return "nothing"
        return f"{type_names[self.tag]} {shown(self.text)}"


def wanted(shape: Scalar | Choice) -> str:
    """Return which values an option accepts, for a message."""
    if isinstance(shape, Choice):
        return f"one of {', '.join(value for value in shape.values if value)}"
    return _WANTED[shape.type]


def read_scalar(shape: Scalar | Choice, value: Value) -> object:
    """Return the value, converted to the type of the option.

    Raises:
        Refused: The value has the wrong type, is not one of the choices, or breaks a bound.
    """
    if isinstance(shape, Choice):
        return _choice(shape, value)
    result = _READERS[shape.type](value)
    broken = next(shape.limits.broken(result), None)
    if broken is not None:
        reason, hint = broken
        raise Refused(f"{shown(value.written)} {reason}", hint)
    return result


def _choice(shape: Choice, value: Value) -> str:
    if value.text in shape.values:
        return value.text
    hint = "" if value.expanded else did_you_mean(value.text, shape.values)
    raise Refused(f"expected {wanted(shape)}, found {value.describe()}", hint)


def _wrong(value: Value, kind: type, hint: str = "") -> Refused:
    return Refused(f"expected {_WANTED[kind]}, found {value.describe()}", hint)


def _wrong_or_quoted(value: Value, kind: type, matches: object) -> Refused:
    """Return the error for a wrong value; the hint says if only the quotes are wrong."""
    return _wrong(value, kind, "remove the quotes" if matches and not value.plain else "")


def _str(value: Value, kind: type = str) -> str:
    """Return the text as it is written, whatever its type in YAML: ``1.10`` stays 1.10.

    Null is refused, because the user probably forgot the value. An empty variable is accepted.
    """
    if value.null and not value.expanded:
        hint = f'write "{value.text}" in quotes' if value.text else 'write "" for an empty text'
        raise _wrong(value, kind, hint)
    return value.text


def _path(value: Value) -> pathlib.Path:
    text = _str(value, pathlib.Path)
    if not text:
        raise _wrong(value, pathlib.Path, "a path has at least one character")
    return pathlib.Path(text)


def _bool(value: Value) -> bool:
    if value.tag == "bool":
        return value.text.lower() in _TRUE
    raise _wrong_or_quoted(value, bool, value.text.lower() in _TRUE | {"no", "false", "off"})


def _int(value: Value) -> int:
    if value.tag != "int":
        raise _wrong_or_quoted(value, int, _INT.match(value.text))
    if not _INT.match(value.text):
        raise Refused(
            f"{shown(value.written)} is read differently by different YAML readers",
            "write a plain decimal number, without a leading zero or a colon",
        )
    if len(value.text) > _LONGEST_NUMBER:
        raise Refused(f"{shown(value.written)} is out of range", "write a smaller number")
    digits = value.text.replace("_", "")
    if digits.lower().lstrip("+-") == "0x":
        raise _wrong(value, int)
    number = int(digits, 16 if "x" in digits else 10)
    if number not in _INT_RANGE:
        raise Refused(f"{shown(value.written)} is out of range", "write a smaller number")
    return number


def _float(value: Value) -> float:
    if value.tag == "int":
        return float(_int(value))
    # YAML 1.1 reads 1e3 as a text, so that the tag is not sufficient.
    if not value.plain or len(value.text) > _LONGEST_NUMBER or not _FLOAT.match(value.text):
        raise _wrong_or_quoted(value, float, _FLOAT.match(value.text))
    number = float(value.text)
    if not math.isfinite(number):
        raise Refused(f"{shown(value.written)} is out of range", "write a smaller number")
    return number


def _parsed(kind: type[Duration | ByteSize | ListenAddress]) -> Callable[[Value], Any]:
    def read(value: Value) -> object:
        if value.tag in ("null", "bool", "timestamp"):
            raise _wrong(value, kind)
        try:
            return kind.parse(value.text)
        except FormatError as error:
            if value.expanded:
                message = f"the value of {shown(value.written)} {error.reason}"
                raise Refused(message, f"expected {_WANTED[kind]}") from None
            raise Refused(f"{shown(value.text)} {error.reason}", error.hint) from None

    return read


_READERS: Final[dict[type, Callable[[Value], Any]]] = {
    str: _str,
    bool: _bool,
    int: _int,
    float: _float,
    Duration: _parsed(Duration),
    ByteSize: _parsed(ByteSize),
    ListenAddress: _parsed(ListenAddress),
    pathlib.Path: _path,
}
