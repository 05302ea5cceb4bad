"""Markers for the options of a component, used in ``Annotated``.

Example: ``Annotated[Duration, AtLeast("100ms"), Doc("How often the readings are taken.")]``.
Types without units also accept ``msgspec.Meta``.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Doc:
    """The description of an option for users, in one or two sentences."""

    text: str


@dataclass(frozen=True, slots=True)
class AtLeast:
    """The lowest allowed value; a text such as ``100ms`` or ``1KiB`` for values with units."""

    bound: str | float


@dataclass(frozen=True, slots=True)
class AtMost:
    """The highest allowed value; a text such as ``1h`` or ``1MiB`` for values with units."""

    bound: str | float


@dataclass(frozen=True, slots=True)
class OneOf:
    """A text that must be one of the values that ``Kinds.allowed_values(noun)`` returns.

    Attributes:
        noun: What the text names, such as ``field``; also used in messages.
    """

    noun: str


@dataclass(frozen=True, slots=True)
class LeadsTo:
    """A path that leads to code: a user who can write that file can run code as podgpu.

    Attributes:
        kind: ``library`` for a library to load, ``kubeconfig`` for a file that may name a program.
    """

    kind: Literal["library", "kubeconfig"]


@dataclass(frozen=True, slots=True)
class Role:
    """Marks a ``dict[str, Component]`` of ``Config`` as the mapping of all sources or all sinks.

    Attributes:
        name: ``source`` or ``sink``.
        absent: The message if no component is configured.
    """

    name: str
    absent: str
