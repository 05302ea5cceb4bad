"""The catalogue of fields, in the order of the metrics page, and the plan.

A plan says which fields are read and exported, and under which names. How often a field is read
depends on the cost of a read, which was measured on H100 cards: `docs/fields.md`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from pipeline.fields.board_fields import BOARDS
from pipeline.fields.device_fields import DEVICES
from pipeline.fields.error_fields import FAULTS
from pipeline.fields.field import Field, Group
from pipeline.fields.interconnect_fields import INTERCONNECTS
from pipeline.fields.label_fields import LABELS
from pipeline.fields.link_fields import LINKS
from pipeline.fields.memory_fields import MEMORY
from pipeline.fields.profiling_fields import PROFILING
from pipeline.fields.statistics_fields import STATISTICS
from pipeline.fields.utilization_fields import WORK

CATALOGUE: Final = (
    *(*BOARDS, *WORK, *MEMORY, *FAULTS, *LINKS, *PROFILING, *STATISTICS),
    *(*DEVICES, *INTERCONNECTS),
)
"""All fields that have series. Fields of the type `label` are in `LABELS`."""

_BY_NAME: Final = {field.name: field for field in (*CATALOGUE, *LABELS)}


def _called() -> Mapping[str, Sequence[Field]]:
    found: defaultdict[str, list[Field]] = defaultdict(list)
    for field in _BY_NAME.values():
        for name in {field.name, field.podgpu_metric, *field.dcgm_names}:
            found[name].append(field)
    return found


_CALLED: Final = _called()
"""Fields by each of their names. A table, because a list may have many rows to look up."""


def by_name(name: str) -> Field | None:
    """Return the field or label field with podgpu's name `name`; None if there is none."""
    return _BY_NAME.get(name)


def called(name: str) -> Iterator[Field]:
    """Yield the fields with a name in podgpu, DCGM or dcgm-exporter 1.x, or of a metric family.

    Two fields can share a name, as a rate and its counter do in DCGM. Their types are different.
    """
    yield from _CALLED.get(name, ())


UNASKED: Final[frozenset[Group]] = frozenset({"standard", "own"})
"""Groups that are read by default."""

EVERYTHING: Final = "all"
GROUPS: Final[tuple[str, ...]] = tuple(group for group in get_args(Group) if group != "labels")


def all_words() -> tuple[str, ...]:
    """Return every word that `chosen` accepts."""
    names = (name for field in (*CATALOGUE, *LABELS) for name in _names(field))
    return (EVERYTHING, *GROUPS, *dict.fromkeys(names))


def chosen(word: str) -> tuple[Field, ...]:
    """Return the fields that a word selects; no fields if the word is not in `all_words`.

    If two fields share a name, the field that does not have it as an alias is selected.
    """
    if word == EVERYTHING:
        return CATALOGUE
    if word in GROUPS:
        names = in_group(word)
        return tuple(field for field in CATALOGUE if field.name in names)
    found = list(called(word))
    return tuple(sorted(found, key=lambda field: word in field.aliases)[:1])


def _names(field: Field) -> tuple[str, ...]:
    own = () if field.type == "label" else (field.podgpu_metric,)
    return (field.name, *field.dcgm_names, *own)


@dataclass(frozen=True, slots=True)
class Row:
    """A selected field, and how it is exported.

    Attributes:
        field: the field.
        metric: name of the metric family; empty for the default name.
        type: type of the metric family; empty for the field's type.
        help: text of the HELP line; empty for the field's help.
    """

    field: Field
    metric: str = ""
    type: Literal["", "gauge", "counter"] = ""
    help: str = ""


@dataclass(frozen=True, slots=True)
class LabelRow:
    """A constant text that all series with DCGM's names have as a label.

    Attributes:
        label: the label's name.
        field: name of the field of type `label`; a key of `Device.facts`.
    """

    label: str
    field: str


class FieldPlan:
    """The selected fields, in the order of the catalogue. Samplers and sinks use the same plan.

    Args:
        names: names of the fields. None selects the default fields if there are no `rows`.
        rows: fields in addition to `names`, with the way to export them. A field may have several,
            with different names of the metric.
        labels: constant texts that all series with DCGM's names have as labels.
    """

    def __init__(
        self,
        names: Iterable[str] | None = None,
        *,
        rows: Iterable[Row] = (),
        labels: Iterable[LabelRow] = (),
    ) -> None:
        custom: defaultdict[str, list[Row]] = defaultdict(list)
        for row in rows:
            custom[row.field.name].append(row)
        if names is None and not custom:
            chosen = {field.name for field in CATALOGUE if field.group in UNASKED}
        else:
            chosen = {*(names or ()), *custom}
        self.labels: tuple[LabelRow, ...] = tuple(labels)
        self.fields: tuple[Field, ...] = tuple(each for each in CATALOGUE if each.name in chosen)
        self._rows = {
            field.name: tuple(custom.get(field.name) or (Row(field),)) for field in self.fields
        }
        self.rows: tuple[Row, ...] = tuple(row for rows in self._rows.values() for row in rows)

    @classmethod
    def everything(cls) -> "FieldPlan":
        """Return the plan with all fields."""
        return cls(field.name for field in CATALOGUE)

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FieldPlan):
            return NotImplemented
        return (self.rows, self.labels) == (other.rows, other.labels)

    def __hash__(self) -> int:
        return hash((self.rows, self.labels))

    def rows_of(self, name: str) -> Sequence[Row]:
        """Return how a field is exported: the rows in the order of the list; empty without it."""
        return self._rows.get(name, ())

    def any_of(self, *names: str) -> bool:
        """Return whether one of these fields is selected, so that their common call is needed."""
        return not self._rows.keys().isdisjoint(names)


def in_group(group: str) -> tuple[str, ...]:
    """Return the names of a group's fields that have series."""
    return tuple(field.name for field in CATALOGUE if field.group == group)
