"""Protocols by which this package learns about components and their options."""

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import msgspec


class Kinds(Protocol):
    """The kinds of components that exist. A role is ``source`` or ``sink``."""

    def names(self, role: str) -> "Sequence[str]":
        """Return the kinds of a role, in display order."""

    def options(self, role: str, kind: str) -> "type[msgspec.Struct]":
        """Return the options class of a kind; called only with kinds that ``names`` returned."""

    def allowed_values(self, noun: str) -> "Iterable[str]":
        """Return all values of an option that is marked ``OneOf(noun)``."""


@runtime_checkable
class Exclusive(Protocol):
    """Options with resources that only one component can use, such as a file or an address."""

    def exclusive(self) -> "Iterable[str]":
        """Return descriptions of the resources; equal texts mean the same resource."""


@runtime_checkable
class ExclusiveOnNode(Protocol):
    """Like ``Exclusive``, but the resource depends on the node's name."""

    def exclusive_on(self, node: str) -> "Iterable[str]":
        """Return descriptions of the resources.

        Args:
            node: the node's name: the one at the top of the file, or else the host name.
        """
