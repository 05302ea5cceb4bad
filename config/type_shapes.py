"""Converts the type hints of an options class to shapes, which the other modules use.

A hint without a shape raises TypeError, because it is a bug of the program, not of the file.
"""

import pathlib
import types
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from config.option_markers import Doc, LeadsTo, OneOf, Role
from config.value_limits import Limits
from config.value_types import ByteSize, Duration, ListenAddress

_SCALARS: Final[frozenset[type]] = frozenset(
    {str, bool, int, float, Duration, ByteSize, ListenAddress, pathlib.Path}
)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value of one of the supported types.

    Attributes:
        known: What a text must name, such as ``field``; empty if any text is valid.
        leads_to: The kind of code that a path leads to; empty for none. See ``LeadsTo``.
    """

    type: type
    limits: Limits
    known: str = ""
    leads_to: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the texts of a Literal."""

    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Maybe:
    """The inner shape, or null."""

    inner: "Shape"


@dataclass(frozen=True, slots=True)
class Items:
    """A list, which is a tuple in the Struct."""

    inner: "Shape"
    limits: Limits


@dataclass(frozen=True, slots=True)
class Table:
    """A mapping from arbitrary names to values of one shape."""

    inner: "Shape"
    limits: Limits


@dataclass(frozen=True, slots=True)
class Components:
    """A mapping from names to the components of one role."""

    role: str
    absent: str


@dataclass(frozen=True, slots=True)
class Record:
    """A mapping with known keys, stored in a Struct."""

    type: type[msgspec.Struct]
    fields: "tuple[Field, ...]"


Shape = Scalar | Choice | Maybe | Items | Table | Components | Record


@dataclass(frozen=True, slots=True)
class Field:
    """One key of a record.

    Attributes:
        name: The attribute of the Struct.
        key: The key in the file.
        doc: Its description; may be empty.
        default: The value without the key; ``msgspec.NODEFAULT`` if the key is required.
    """

    name: str
    key: str
    shape: Shape
    doc: str
    default: object

    @property
    def required(self) -> bool:
        """True if the key is required."""
        return self.default is msgspec.NODEFAULT


@cache
def record(options: type[msgspec.Struct]) -> Record:
    """Return the shape of an options class.

    Raises:
        TypeError: A field has a type, a bound or a marker that is not supported.
    """
    return _record(options, ())


def _record(options: type[msgspec.Struct], outer: tuple[type, ...]) -> Record:
    if options in outer:
        raise TypeError(f"{options.__qualname__} holds itself: options cannot be recursive")
    hints = get_type_hints(options, include_extras=True)
    fields = []
    for info in msgspec.structs.fields(options):
        where = f"{options.__qualname__}.{info.name}"
        hint = hints[info.name]
        default = info.default
        if info.default_factory is not msgspec.NODEFAULT:
            default = info.default_factory()
        shape = _shape(hint, where, (*outer, options))
        fields.append(Field(info.name, info.encode_name, shape, _doc(hint), default))
    return Record(options, tuple(fields))


def _doc(hint: Any) -> str:
    for marker in getattr(hint, "__metadata__", ()):
        if isinstance(marker, Doc):
            return " ".join(marker.text.split())
    return ""


def _shape(hint: Any, where: str, outer: tuple[type, ...], markers: tuple[Any, ...] = ()) -> Shape:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _shape(arguments[0], where, outer, (*hint.__metadata__, *markers))
    if origin in (Union, types.UnionType):
        inner = [member for member in arguments if member is not type(None)]
        if len(inner) != 1:
            raise TypeError(f"{where}: a union is of one type and None")
        return Maybe(_shape(inner[0], where, outer, markers))
    limits = Limits.of(hint, where, markers)
    if hint in _SCALARS:
        known = next((marker.noun for marker in markers if isinstance(marker, OneOf)), "")
        leads_to = next((marker.kind for marker in markers if isinstance(marker, LeadsTo)), "")
        return Scalar(hint, limits, known, leads_to)
    if origin in (tuple, dict):
        return _collection(hint, where, outer, markers, limits)
    if limits != Limits():
        raise TypeError(f"{where}: {hint} takes no bounds")
    if origin is Literal and all(isinstance(v, str) for v in arguments):
        return Choice(arguments)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _record(hint, outer)
    raise TypeError(f"{where}: {hint} is not a type that options can have")


def _collection(
    hint: Any, where: str, outer: tuple[type, ...], markers: tuple[Any, ...], limits: Limits
) -> Shape:
    origin, (first, *rest) = get_origin(hint), get_args(hint)
    if origin is tuple and rest == [Ellipsis]:
        return Items(_shape(first, where, outer), limits)
    if origin is tuple or first is not str:
        raise TypeError(f"{where}: {hint} is neither tuple[T, ...] nor dict[str, T]")
    role = next((marker for marker in markers if isinstance(marker, Role)), None)
    if role is not None:
        return Components(role.name, role.absent)
    return Table(_shape(rest[0], where, outer), limits)
