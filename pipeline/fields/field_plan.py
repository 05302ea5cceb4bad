"""Which fields are read and shown, and under which names."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from pipeline.fields.catalogue import CATALOGUE
from pipeline.fields.field import Field, Group

UNASKED: Final[frozenset[Group]] = frozenset({"standard", "own"})
"""Groups that are read when nobody chooses."""


@dataclass(frozen=True, slots=True)
class Row:
    """A field that somebody asked for, and how they want it shown.

    Attributes:
        field: the field.
        metric: name of its family, as it was asked for; empty for the usual one.
        type: of its family; empty for the field's own.
        help: its HELP line; empty for the field's own.
    """

    field: Field
    metric: str = ""
    type: Literal["", "gauge", "counter"] = ""
    help: str = ""


@dataclass(frozen=True, slots=True)
class LabelRow:
    """A constant text that stands on every series in DCGM's names.

    Attributes:
        label: the label's name.
        field: name of the field of type `label`; a key of `Device.facts`.
    """

    label: str
    field: str


class FieldPlan:
    """The fields that somebody asked for, in catalogue order: one plan for samplers and sinks.

    Args:
        names: names of the fields; None means those that are read when nobody chooses.
        rows: fields with a wish of how they are shown, of which each field has one at most;
            together with those of `names`.
        labels: texts that stand on every series.
    """

    def __init__(
        self,
        names: Iterable[str] | None = None,
        *,
        rows: Iterable[Row] = (),
        labels: Iterable[LabelRow] = (),
    ) -> None:
        wished = {row.field.name: row for row in rows}
        if names is None and not wished:
            chosen = {field.name for field in CATALOGUE if field.group in UNASKED}
        else:
            chosen = {*(names or ()), *wished}
        self.rows: tuple[Row, ...] = tuple(
            wished.get(field.name) or Row(field) for field in CATALOGUE if field.name in chosen
        )
        self.labels: tuple[LabelRow, ...] = tuple(labels)
        self.fields: tuple[Field, ...] = tuple(row.field for row in self.rows)
        self._rows = {row.field.name: row for row in self.rows}

    @classmethod
    def everything(cls) -> "FieldPlan":
        """Return the plan of all fields there are."""
        return cls(field.name for field in CATALOGUE)

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FieldPlan):
            return NotImplemented
        return (self.rows, self.labels) == (other.rows, other.labels)

    def __hash__(self) -> int:
        return hash((self.rows, self.labels))

    def row(self, name: str) -> Row | None:
        """Return how a field is to be shown; None if nobody asked for it."""
        return self._rows.get(name)

    def any_of(self, *names: str) -> bool:
        """Whether at least one of the names is in the plan: then their common call is made."""
        return not self._rows.keys().isdisjoint(names)


def in_group(group: str) -> tuple[str, ...]:
    """Return the names of a group's fields."""
    return tuple(field.name for field in CATALOGUE if field.group == group)
