"""Markers for the options of a component, written inside ``Annotated``.

``Annotated[Duration, AtLeast("100ms"), Doc("How often the readings are taken.")]``; plain types
take ``msgspec.Meta`` as well.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Doc:
    """What an option does, in a sentence or two for the person who writes the file."""

    text: str


@dataclass(frozen=True, slots=True)
class AtLeast:
    """The lowest value allowed; a text such as ``100ms`` or ``1KiB`` for values with units."""

    bound: str | float


@dataclass(frozen=True, slots=True)
class AtMost:
    """The highest value allowed; a text such as ``1h`` or ``1MiB`` for values with units."""

    bound: str | float


@dataclass(frozen=True, slots=True)
class OneOf:
    """A text that is one of the words that the program knows; ``Kinds.words`` tells which.

    Attributes:
        noun: What such a word names, for messages: ``field``.
    """

    noun: str


@dataclass(frozen=True, slots=True)
class LeadsTo:
    """A path that leads to code: who may write the file runs code as the daemon.

    Attributes:
        kind: ``library`` for one that is loaded, ``kubeconfig`` for a file that may name a program.
    """

    kind: Literal["library", "kubeconfig"]


@dataclass(frozen=True, slots=True)
class Role:
    """Marks a ``dict[str, Component]`` of the top level as holding components.

    Attributes:
        name: ``source`` or ``sink``.
        absent: What to say when there are none.
    """

    name: str
    absent: str
