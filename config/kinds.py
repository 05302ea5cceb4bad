"""What this package asks of whoever knows the components."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import msgspec


class Kinds(Protocol):
    """The kinds of components that exist. A role is ``source`` or ``sink``."""

    def names(self, role: str) -> "Sequence[str]":
        """Return the kinds of that role, in the order to show them."""
        ...

    def options(self, role: str, kind: str) -> "type[msgspec.Struct]":
        """Return the options of a kind; asked only for kinds that ``names`` gave."""
        ...
