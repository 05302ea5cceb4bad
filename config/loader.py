"""Reads the configuration file, or another YAML file with its own structure."""

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar, cast

import msgspec
from yaml.reader import Reader

from config.component_kinds import Kinds
from config.converter import Converter
from config.env_expansion import Environment
from config.errors import ConfigError, Problem
from config.schema import Config
from config.type_shapes import record
from config.yaml_composer import compose
from config.yaml_nodes import MapNode

__all__ = ["MAX_BYTES", "Kinds", "load", "parse", "parse_struct", "read"]

T = TypeVar("T", bound=msgspec.Struct)

MAX_BYTES: Final = 1024 * 1024
"""The largest file that is read, in bytes."""


def load(path: Path, kinds: Kinds, *, env: Mapping[str, str]) -> Config:
    """Read a configuration file. Blocking.

    Raises:
        ConfigError: The file cannot be read, or has problems.
    """
    return parse(read(path), kinds, env=env, origin=str(path))


def read(path: Path) -> bytes:
    """Return the bytes of a file, at most one more than ``MAX_BYTES``. Blocking.

    Raises:
        ConfigError: The file cannot be read.
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
        hint = "allow podgpu's user to read it"
        raise _refusal(origin, "no permission to read the file", hint) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _refusal(origin, f"the file cannot be read: {reason}") from error


def _refusal(origin: str, message: str, hint: str = "", *place: int) -> ConfigError:
    return ConfigError(origin, [Problem("", message, hint, *place)])


def parse(text: str | bytes, kinds: Kinds, *, env: Mapping[str, str], origin: str) -> Config:
    """Parse a document; ``origin`` is its name in messages, ``env`` expands its placeholders.

    Raises:
        ConfigError: It has problems; the error has all of them.
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
    """Parse a document with one Struct and no components; placeholders are not expanded.

    An empty document counts as an empty mapping.

    Raises:
        ConfigError: It has problems; the error has all of them.
        TypeError: The Struct is invalid: a bug in podgpu.
    """
    root, problems = compose(_decoded(text, origin))
    converter = Converter(_NoKinds(), None)
    found = None if problems else converter.convert(record(shape), root or MapNode(1, 1))
    problems += converter.problems
    if problems:
        raise ConfigError(origin, problems)
    return cast("T", found)


class _NoKinds:
    """For documents without components."""

    def names(self, role: str) -> tuple[str, ...]:  # noqa: ARG002
        return ()

    def options(self, role: str, kind: str) -> type[msgspec.Struct]:
        raise TypeError(f"no {role} {kind} in a document without components")

    def allowed_values(self, noun: str) -> tuple[str, ...]:  # noqa: ARG002
        return ()


def _decoded(text: str | bytes, origin: str) -> str:
    data = text
    if isinstance(data, str):
        try:
            data = data.encode()
        except UnicodeEncodeError as error:
            message = f"not valid text at character {error.start + 1}"
            raise _refusal(origin, message, "save as UTF-8") from None
    if len(data) > MAX_BYTES:
        raise _refusal(origin, "larger than 1 MiB", "a configuration has a few kilobytes")
    try:
        decoded = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        start = data.rfind(b"\n", 0, error.start) + 1
        line = data.count(b"\n", 0, start) + 1
        column = len(data[start : error.start].decode("utf-8-sig" if line == 1 else "utf-8")) + 1
        raise _refusal(origin, "not UTF-8", "save the file as UTF-8", line, column) from None
    bad = Reader.NON_PRINTABLE.search(decoded)
    if bad is not None:
        before = decoded[: bad.start()]
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        nul = "a NUL byte: this is not a text file"
        other = f"the character U+{ord(bad[0]):04X} is not allowed"
        raise _refusal(origin, nul if bad[0] == "\0" else other, "remove it", line, column)
    return decoded
