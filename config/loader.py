"""Reads the configuration file, or another YAML file that a Struct describes."""

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar, cast

import msgspec
from yaml.reader import Reader

from config.converter import Converter, Kinds
from config.env_expansion import Environment
from config.errors import ConfigError, Problem
from config.schema import Config
from config.type_shapes import record
from config.yaml_composer import MapNode, compose

T = TypeVar("T", bound=msgspec.Struct)

MAX_BYTES: Final = 1024 * 1024
"""The size limit of a file, in bytes."""


def load(path: Path, kinds: Kinds, *, env: Mapping[str, str]) -> Config:
    """Read a configuration file. Blocking.

    Raises:
        ConfigError: The file cannot be read, or has problems.
    """
    return parse(read(path), kinds, env=env, origin=str(path))


def read(path: Path) -> bytes:
    """Return the content of a file, but at most ``MAX_BYTES`` + 1 bytes. Blocking.

    Raises:
        ConfigError: The file cannot be read, or is not a regular file.
    """
    origin = str(path)
    try:
        # A pipe or a device may never end.
        if not stat.S_ISREG(path.stat().st_mode):
            raise _refusal(origin, "not a regular file", "give the path of a YAML file")
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        hint = "check the path, and that it is mounted"
        raise _refusal(origin, "there is no such file", hint) from None
    except PermissionError:
        hint = "allow podgpu's user to read the file"
        raise _refusal(origin, "no permission to read the file", hint) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _refusal(origin, f"the file cannot be read: {reason}") from error


def _refusal(origin: str, message: str, hint: str = "", *place: int) -> ConfigError:
    return ConfigError(origin, [Problem("", message, hint, *place)])


def parse(text: str | bytes, kinds: Kinds, *, env: Mapping[str, str], origin: str) -> Config:
    """Parse a document. ``origin`` is its name in messages; ``env`` has the variables.

    Raises:
        ConfigError: The document has problems.
        TypeError: An options class is invalid: a bug in podgpu.
    """
    root, problems = compose(_decoded(text, origin))
    if root is None:
        empty = Problem("", "the file is empty", "configure a source and a sink")
        raise ConfigError(origin, problems or [empty])
    converter = Converter(kinds, Environment(env))
    if not isinstance(root, MapNode):
        message = "the top level must be a mapping with the keys sources and sinks"
        raise ConfigError(origin, [*problems, Problem("", message, "", root.line, root.column)])
    config = converter.convert(record(Config), root)
    problems += converter.problems
    if problems:
        raise ConfigError(origin, problems)
    return cast("Config", config)


def parse_struct(text: str | bytes, shape: type[T], *, origin: str) -> T:
    """Parse a document that one Struct describes, without components and placeholders.

    An empty document counts as an empty mapping.

    Raises:
        ConfigError: The document has problems.
        TypeError: The Struct is invalid: a bug in podgpu.
    """
    root, problems = compose(_decoded(text, origin))
    # Kinds are used for components only.
    converter = Converter(cast("Kinds", None), None)
    found = None if problems else converter.convert(record(shape), root or MapNode(1, 1))
    problems += converter.problems
    if problems:
        raise ConfigError(origin, problems)
    return cast("T", found)


def _decoded(text: str | bytes, origin: str) -> str:
    data = text
    if isinstance(data, str):
        try:
            data = data.encode()
        except UnicodeEncodeError as error:
            message = f"not valid text at character {error.start + 1}"
            raise _refusal(origin, message, "save as UTF-8") from None
    if len(data) > MAX_BYTES:
        raise _refusal(
            origin, "larger than the limit of 1 MiB", "check that this is the right file"
        )
    try:
        decoded = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = _end(data[: error.start].decode("utf-8-sig"))
        raise _refusal(origin, "not UTF-8", "save the file as UTF-8", *place) from None
    bad = Reader.NON_PRINTABLE.search(decoded)
    if bad is not None:
        nul = "a NUL byte: this is not a text file"
        other = f"the character U+{ord(bad[0]):04X} is not allowed"
        raise _refusal(
            origin, nul if bad[0] == "\0" else other, "remove it", *_end(decoded[: bad.start()])
        )
    return decoded


def _end(text: str) -> tuple[int, int]:
    """Return line and column of the character that follows a text."""
    return text.count("\n") + 1, len(text) - text.rfind("\n")
