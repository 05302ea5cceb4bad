"""Builds the plan of fields from the rows of a counters list and the configuration."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, cast

from config.message_text import shown
from config.schema import Counters
from pipeline.counters.csv_rows import CsvRow, read
from pipeline.fields import (
    CATALOGUE,
    Field,
    FieldPlan,
    LabelRow,
    Row,
    called,
    chosen,
    in_group,
)
from pipeline.fields.name_answers import NameAnswers

_TYPES: Final = ("gauge", "counter", "label", "untyped")
_UNSUPPORTED_TYPES: Final = ("histogram", "summary")
_MAX_LISTED: Final = 100
_LONGEST_SHOWN: Final = 80
"""Longer names are shortened in messages. DCGM's longest name has 65 characters."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of reading a list.

    Attributes:
        plan: the plan; None if no row of the list can be used.
        complaints: why rows are skipped, in the order of their lines.
    """

    plan: FieldPlan | None
    complaints: tuple[str, ...]


def default_plan(setting: Counters) -> FieldPlan:
    """Return the plan without a list: the default fields and those of `also`."""
    groups = ("standard", "own") if setting.own else ("standard",)
    return _plan((), (), setting, {name for group in groups for name in in_group(group)})


def planned(text: str, setting: Counters) -> Reading:
    """Parse a list and build its plan. If rows repeat a name, the first one is used.

    A list may have several names of a field, as the old and the new one of DCGM, which may have
    another unit. Each is exported.

    Never raises an exception.
    """
    rows: list[Row] = []
    labels: list[LabelRow] = []
    complaints: list[str] = []
    used: dict[str, CsvRow] = {}
    answers = NameAnswers()
    for row in read(text):
        if isinstance(row, str):
            complaints.append(row)
            continue
        field = _field(row, answers, guess=len(complaints) < _MAX_LISTED)
        if isinstance(field, str):
            complaints.append(f"line {row.line}: {_shown_name(row.name)} {field}")
            continue
        texts = field.type == "label"
        # podgpu's name of a field has no prefix yet, and means podgpu's unit.
        name = field.podgpu_metric if row.name == field.name and not texts else row.name
        if (first := used.setdefault(name, row)) is not row:
            about = "is already" if first.name == row.name else f"is the same name as {first.name}"
            problem = f"{about} on line {first.line}; remove one of them"
        elif texts:
            labels.append(LabelRow(name, field.name))
            continue
        else:
            # Prometheus treats an untyped family like one with a type, which says more.
            type_ = field.type if row.type == "untyped" else row.type
            rows.append(Row(field, name, cast('Literal["gauge", "counter"]', type_), row.help))
            continue
        complaints.append(f"line {row.line}: {_shown_name(row.name)} {problem}")
    plan = None
    if rows:
        # Not podgpu's fields that DCGM has too: the list decides on them.
        own = {field.name for field in CATALOGUE if field.group == "own" and not field.dcgm}
        plan = _plan(rows, labels, setting, own if setting.own else set())
    return Reading(plan, tuple(complaints))


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
    """Return rows for fields whose default metric name is used by a row of another field.

    In DCGM, a rate and its counter share a name. If the list has one of the two fields under that
    name, the other field gets podgpu's name.
    """
    taken = {row.metric for row in rows}
    others = names - {row.field.name for row in rows}
    return [
        Row(field, metric=field.podgpu_metric)
        for field in CATALOGUE
        if field.name in others and field.metric in taken
    ]


def _field(row: CsvRow, answers: NameAnswers, *, guess: bool) -> Field | str:
    """Return the field that a row means, or a text that describes the problem of the row."""
    found = list(called(row.name))
    if not found:
        return answers.about(row.name, guess=guess)
    kinds = {field.type == "label" for field in found}
    texts = kinds == {True}
    if row.type not in _TYPES:
        other = "label" if texts else found[0].type
        if row.type in _UNSUPPORTED_TYPES:
            return f"can't be a {row.type}; write {other}"
        return f"has the unknown type {shown(row.type)}; write {other}"
    if texts and row.type != "label":
        return f"is a text and can't be a {row.type}; write label"
    if row.type == "label" and True not in kinds:
        return f"is a number and can't be a label; write {found[0].type}"
    # If two fields share the name, the type of the row decides.
    return next((field for field in found if field.type == row.type), found[0])


def _shown_name(name: str) -> str:
    return name if name.isidentifier() and len(name) <= _LONGEST_SHOWN else shown(name)


def warning(place: str, reading: Reading, fallback: str) -> str:
    """Return a text that lists the skipped rows of a list, with the reasons.

    Only the first `_MAX_LISTED` of them are listed.

    Args:
        place: the file or ConfigMap of the list.
        reading: the result of reading the list.
        fallback: what podgpu does instead if no row of the list can be used, as text.

    Returns:
        A text of several lines; empty if there are no problems.
    """
    count = len(reading.complaints)
    if reading.plan is None:
        head = f"{place}: no row of the list can be used; {fallback}"
    elif count:
        head = f"{place}: {count} rows are ignored" if count > 1 else f"{place}: a row is ignored"
    else:
        return ""
    lines = [f"  {complaint}" for complaint in reading.complaints[:_MAX_LISTED]]
    if count > _MAX_LISTED:
        rest = count - _MAX_LISTED
        lines.append(f"  {rest} more are not listed; podgpu fields NAME has the answer for each")
    return "\n".join([f"{head}:" if count else head, *lines])
