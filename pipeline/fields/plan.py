"""Which fields are read and shown."""

from collections.abc import Iterable

from pipeline.fields.catalogue import CATALOGUE
from pipeline.fields.field import Field


class FieldPlan:
    """The fields that somebody asked for, in catalogue order: one plan for samplers and sinks.

    Args:
        names: names of the fields; None means all of them.
    """

    def __init__(self, names: Iterable[str] | None = None) -> None:
        wanted = None if names is None else frozenset(names)
        self.fields: tuple[Field, ...] = tuple(
            field for field in CATALOGUE if wanted is None or field.name in wanted
        )
        self._names = frozenset(field.name for field in self.fields)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def any_of(self, *names: str) -> bool:
        """Whether at least one of the names is in the plan: then their common call is made."""
        return not self._names.isdisjoint(names)
