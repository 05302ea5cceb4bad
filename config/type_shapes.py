"""Converts the type hints of an options class to shapes, which the other modules use.

A type hint without a shape raises TypeError, because it is a bug in podgpu.
"""

import pathlib
import re
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, Final, Literal, Self, Union, get_args, get_origin, get_type_hints

import msgspec

from config.option_markers import AtLeast, AtMost, Doc, LeadsTo, OneOf, Role
from config.value_types import ByteSize, Duration, ListenAddress

_SCALARS: Final[frozenset[type]] = frozenset(
    {str, bool, int, float, Duration, ByteSize, ListenAddress, pathlib.Path}
)


_NOUNS: Final[dict[type, str]] = {str: "characters", tuple: "items", dict: "entries"}


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a value that has the right type; None means no limit.

    ``ge`` and ``le`` are the lowest and highest value. Lengths are numbers of characters, items or
    entries. ``pattern`` may match anywhere in a text.
    """

    ge: float | None = None
    le: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None

    @classmethod
    def of(cls, hint: Any, where: str, markers: Iterable[object]) -> Self:
        """Return the limits in the markers of a type; TypeError for exclusive bounds."""
        base = get_origin(hint) or hint
        found: dict[str, Any] = {}
        for marker in markers:
            if isinstance(marker, AtLeast):
                found["ge"] = marker.bound
            elif isinstance(marker, AtMost):
                found["le"] = marker.bound
            elif isinstance(marker, msgspec.Meta):
                if (marker.gt, marker.lt, marker.multiple_of) != (None, None, None):
                    raise TypeError(f"{where}: write inclusive bounds: ge and le")
                bounds = {field.name: getattr(marker, field.name) for field in fields(cls)}
                found |= {name: bound for name, bound in bounds.items() if bound is not None}
        if base in (Duration, ByteSize):
            for name, bound in found.items():
                found[name] = base.parse(bound) if isinstance(bound, str) else base(bound)
        return cls(**found)

    def broken(self, value: Any) -> Iterator[tuple[str, str]]:
        """Yield (reason, hint) for each limit that the value breaks.

        The reason completes a sentence about the value: ``is too small``. The hint has the limit.
        """
        if self.ge is not None and value < self.ge:
            yield "is too small", f"the minimum is {self.ge}"
        if self.le is not None and value > self.le:
            yield "is too large", f"the maximum is {self.le}"
        noun = next((noun for base, noun in _NOUNS.items() if isinstance(value, base)), "")
        if self.min_length is not None and len(value) < self.min_length:
            yield "is too short", f"it needs {self.min_length} or more {noun}"
        if self.max_length is not None and len(value) > self.max_length:
            yield "is too long", f"it takes {self.max_length} or fewer {noun}"
        if self.pattern is not None and not re.search(self.pattern, value):
            yield "does not fit", f"it must match {self.pattern}"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value of one of the supported types.

    Attributes:
        known: What a text must name, such as ``field``; empty if every text is valid.
        leads_to: The kind of code that a path leads to; empty if it leads to none. See ``LeadsTo``.
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
    """A value of the inner shape, or null."""

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
    """A mapping from names to all components of one role."""

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
        name: The name of the attribute of the Struct.
        key: The key in the file.
        doc: The description for users; may be empty.
        default: The value if the key is missing; ``msgspec.NODEFAULT`` if the key is required.
    """

    name: str
    key: str
    shape: Shape
    doc: str
    default: object

    @property
    def required(self) -> bool:
        """Whether the key is required."""
        return self.default is msgspec.NODEFAULT


@cache
def record(options: type[msgspec.Struct]) -> Record:
    """Return the shape of an options class.

    Raises:
        TypeError: A field has a type, a bound or a marker that is not supported.
    """
    hints = get_type_hints(options, include_extras=True)
    keys = []
    for info in msgspec.structs.fields(options):
        hint, default = hints[info.name], info.default
        if info.default_factory is not msgspec.NODEFAULT:
            default = info.default_factory()
        shape = _shape(hint, f"{options.__qualname__}.{info.name}")
        keys.append(Field(info.name, info.encode_name, shape, _doc(hint), default))
    return Record(options, tuple(keys))


def _doc(hint: Any) -> str:
    docs = [marker for marker in getattr(hint, "__metadata__", ()) if isinstance(marker, Doc)]
    return " ".join(docs[0].text.split()) if docs else ""


def _shape(hint: Any, where: str, markers: tuple[Any, ...] = ()) -> Shape:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _shape(arguments[0], where, (*hint.__metadata__, *markers))
    if origin in (Union, types.UnionType):
        inner = [member for member in arguments if member is not type(None)]
        if len(inner) != 1:
            raise TypeError(f"{where}: a union must consist of one type and None")
        return Maybe(_shape(inner[0], where, markers))
    limits = Limits.of(hint, where, markers)
    if hint in _SCALARS:
        known = next((marker.noun for marker in markers if isinstance(marker, OneOf)), "")
        leads_to = next((marker.kind for marker in markers if isinstance(marker, LeadsTo)), "")
        return Scalar(hint, limits, known, leads_to)
    if origin in (tuple, dict):
        return _collection(hint, where, markers, limits)
    if limits != Limits():
        raise TypeError(f"{where}: {hint} takes no bounds")
    if origin is Literal and all(isinstance(v, str) for v in arguments):
        return Choice(arguments)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return record(hint)
    raise TypeError(f"{where}: {hint} is not a type that options can have")


def _collection(hint: Any, where: str, markers: tuple[Any, ...], limits: Limits) -> Shape:
    origin, (first, *rest) = get_origin(hint), get_args(hint)
    if origin is tuple and rest == [Ellipsis]:
        return Items(_shape(first, where), limits)
    if origin is tuple or first is not str:
        raise TypeError(f"{where}: {hint} is neither tuple[T, ...] nor dict[str, T]")
    role = next((marker for marker in markers if isinstance(marker, Role)), None)
    if role is not None:
        return Components(role.name, role.absent)
    return Table(_shape(rest[0], where), limits)
