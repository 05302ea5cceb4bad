"""From the rows of a list and the configuration to the plan: which fields, shown how."""

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, cast

from config.message_text import shown
from config.schema import Counters
from pipeline.counters.csv_rows import Complaint, ListRow, read
from pipeline.counters.unavailable_fields import why
from pipeline.fields import (
    CATALOGUE,
    Field,
    FieldPlan,
    LabelRow,
    Row,
    all_words,
    called,
    chosen,
    in_group,
)

_TYPES: Final = ("gauge", "counter", "label")
_STRANGE: Final = ("histogram", "summary")
_CLOSE: Final = 0.9
"""How alike a name must be to be taken for a slip: most of DCGM's names have half in common."""

_MOST: Final = 100
_LONGEST_GUESSED: Final = 64


@dataclass(frozen=True, slots=True)
class Reading:
    """What a list comes to.

    Attributes:
        plan: None if not one reading of the list can be given: then it is no list.
        complaints: what is left out, in the order of the lines.
    """

    plan: FieldPlan | None
    complaints: tuple[Complaint, ...]


def default_plan(setting: Counters) -> FieldPlan:
    """Return the plan where there is no list: what is read when nobody chooses, and `also`."""
    groups = ("standard", "own") if setting.own else ("standard",)
    return _plan((), (), setting, {name for group in groups for name in in_group(group)})


def planned(text: str, setting: Counters) -> Reading:
    """Read a list and make its plan; never raises."""
    listed, malformed = read(text)
    sheet = _Sheet()
    for row in listed:
        sheet.take(row)
    complaints = sorted([*malformed, *sheet.complaints], key=lambda each: each.line)
    if not sheet.rows:
        return Reading(None, tuple(complaints))
    plan = _plan(sheet.rows, sheet.labels, setting, _own_fields() if setting.own else set())
    return Reading(plan, tuple(complaints))


def _own_fields() -> set[str]:
    """Return podgpu's own readings; one that DCGM has too is left to the list."""
    return {field.name for field in CATALOGUE if field.group == "own" and not field.dcgm}


def _plan(
    rows: Iterable[Row], labels: Iterable[LabelRow], setting: Counters, names: set[str]
) -> FieldPlan:
    rows, labels = list(rows), list(labels)
    for word in setting.also:
        for field in chosen(word):
            if field.type != "label":
                names.add(field.name)
            elif field.name not in {label.field for label in labels}:
                labels.append(LabelRow(word, field.name))
    rows += _renamed(rows, names)
    return FieldPlan(names, rows=rows, labels=labels)


def _renamed(rows: list[Row], names: set[str]) -> list[Row]:
    """Return rows for those fields whose usual family is taken by a row of another field.

    DCGM's rate and its counter share a name: with one of them in the list under it, the other gets
    podgpu's own.
    """
    taken = {row.metric for row in rows}
    others = names - {row.field.name for row in rows}
    return [
        Row(field, metric=field.podgpu_metric)
        for field in CATALOGUE
        if field.name in others and field.metric in taken
    ]


class _Sheet:
    """Takes rows one by one; the first of a name or a field counts."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.labels: list[LabelRow] = []
        self.complaints: list[Complaint] = []
        self._names: dict[str, int] = {}
        self._fields: dict[str, ListRow] = {}

    def take(self, row: ListRow) -> None:
        found = _field(row, guess=len(self.complaints) < _MOST)
        fault = found if isinstance(found, str) else self._twice(row, found)
        if fault:
            self.complaints.append(Complaint(row.line, f"{_reason_for(row.name)} {fault}"))
            return
        field = cast("Field", found)
        self._names[row.name] = row.line
        self._fields[field.name] = row
        if field.type == "label":
            self.labels.append(LabelRow(row.name, field.name))
        else:
            kind = cast('Literal["gauge", "counter"]', row.type)
            # podgpu's name of a field is no name of a metric yet, and has a unit of its own.
            metric = field.podgpu_metric if row.name == field.name else row.name
            self.rows.append(Row(field, metric, kind, row.help))

    def _twice(self, row: ListRow, field: Field) -> str:
        if row.name in self._names:
            return f"stands on line {self._names[row.name]} already; remove one of them"
        if field.name in self._fields:
            first = self._fields[field.name]
            return f"is the same reading as {first.name} on line {first.line}; remove one of them"
        return ""


def _field(row: ListRow, *, guess: bool) -> Field | str:
    """Return the field that a row means, or what is wrong with the row."""
    found = list(called(row.name))
    if not found:
        return why(row.name) or _unknown(row.name, guess=guess)
    texts = all(field.type == "label" for field in found)
    if row.type not in _TYPES:
        other = "label" if texts else found[0].type
        what = "can't be" if row.type in _STRANGE else "has the unknown type"
        return f"{what} {_typed(row.type)}; write {other}"
    if texts and row.type != "label":
        return f"is a text, which can't be a {row.type}; write label"
    if not texts and row.type == "label":
        return f"is a number, which can't be a label; write {found[0].type}"
    # A name that two fields share: the one of that type is meant.
    return next((field for field in found if field.type == row.type), found[0])


def _typed(kind: str) -> str:
    return f"a {kind}" if kind in _STRANGE else shown(kind)


def _unknown(name: str, *, guess: bool) -> str:
    near = _nearest(name) if guess else ""
    return f"is no field that podgpu knows; did you mean {near}?" if near else _NO_FIELD


_NO_FIELD: Final = "is no field that podgpu knows; podgpu fields lists them"


def _nearest(name: str) -> str:
    if len(name) > _LONGEST_GUESSED:
        return ""
    folded = {word.lower(): word for word in all_words()}
    near = difflib.get_close_matches(name.lower(), list(folded), n=1, cutoff=_CLOSE)
    return folded[near[0]] if near else ""


def _reason_for(name: str) -> str:
    return name if name.isidentifier() and len(name) <= _LONGEST_GUESSED else shown(name)


def warning(place: str, reading: Reading, stands: str) -> str:
    """Return the one text that names all that is left out of a list, and why.

    Args:
        place: the list, for people.
        reading: what it came to.
        stands: what is read instead, where nothing of the list can be.

    Returns:
        The text, of several lines; empty if there is nothing to say.
    """
    count = len(reading.complaints)
    if reading.plan is None:
        head = f"{place}: not one reading of the list can be given; {stands}"
    elif count:
        head = f"{place}: {count} rows are left out" if count > 1 else f"{place}: a row is left out"
    else:
        return ""
    return "\n".join([f"{head}:" if count else head, *_lines(reading.complaints)])


def _lines(complaints: tuple[Complaint, ...]) -> Iterator[str]:
    for complaint in complaints[:_MOST]:
        yield f"  {complaint}"
    if len(complaints) > _MOST:
        yield f"  {len(complaints) - _MOST} more are not listed"
