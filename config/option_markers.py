"""Markers for the options of a component, used in ``Annotated``.

``Annotated[Duration, AtLeast("100ms"), Doc("How often the readings are taken.")]``; plain types
also accept ``msgspec.Meta``.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Doc:
    """The description of an option, one or two sentences for the user."""

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
    """A text that must be one of ``Kinds.allowed_values(noun)``.

    Attributes:
        noun: What the text names, for messages: ``field``.
    """

    noun: str


@dataclass(frozen=True, slots=True)
class LeadsTo:
    """A path that leads to code: a user who can write the file can run code as the daemon.

    Attributes:
        kind: ``library`` for a library to load, ``kubeconfig`` for a file that may name a program.
    """

    kind: Literal["library", "kubeconfig"]


@dataclass(frozen=True, slots=True)
class Role:
    """Marks a ``dict[str, Component]`` of the top level as a mapping of components.

    Attributes:
        name: ``source`` or ``sink``.
        absent: The message if there are none.
    """

    name: str
    absent: str
