"""What this package asks of whoever knows the components."""

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import msgspec


class Kinds(Protocol):
    """The kinds of components that exist. A role is ``source`` or ``sink``."""

    def names(self, role: str) -> "Sequence[str]":
        """Return the kinds of that role, in the order to show them."""
        ...

    def options(self, role: str, kind: str) -> "type[msgspec.Struct]":
        """Return the options of a kind; asked only for kinds that ``names`` gave."""
        ...

    def allowed_values(self, noun: str) -> "Iterable[str]":
        """Return every word that an option marked ``Known(noun)`` may have."""
        ...


@runtime_checkable
class Exclusive(Protocol):
    """Options that ask for something that only one component can have."""

    def exclusive(self) -> "Iterable[str]":
        """Return what that is, in words for people; equal words mean the same thing."""
        ...


@runtime_checkable
class ExclusiveOnNode(Protocol):
    """The same, where it takes the node's name to tell what is the same."""

    def exclusive_on(self, node: str) -> "Iterable[str]":
        """Return what that is.

        Args:
            node: the name of the node, as the file has it at the top, else the host's.
        """
        ...
