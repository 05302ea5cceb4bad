"""The table of `docs/dcgm-names.md`: what podgpu answers for each name of DCGM."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from pipeline.fields import called
from pipeline.fields.dcgm_names import RELEASES, DcgmName, dcgm_names
from pipeline.fields.unavailable_names import OF_DCGM_EXPORTER, unavailable_reason

_IN: Final = {"ratio": "as a ratio"}


def answer(name: str) -> str:
    """Return what gives the value of a name, or why nothing does and what to use, as Markdown."""
    fields = list(called(name))
    if not fields:
        reason = unavailable_reason(name)
        assert reason is not None, name
        return reason.text.removeprefix("is ")
    found = []
    for field in fields:
        unit = field.unit_in(name).unit
        other = f", {_IN.get(unit, f'in {unit}')}" if unit != field.unit else ""
        found.append(f"`{field.name}`{', a label' if field.type == 'label' else other}")
    return " or ".join(found)


def _shown(entry: DcgmName) -> str:
    until = f" to {entry.until}" if entry.until else ""
    return f"`{entry.name}` ({entry.since}{until})"


def table() -> Iterator[str]:
    """Yield the lines of the table, and before them how many names there are."""
    names = tuple(dcgm_names())
    given = sum(bool(list(called(entry.name))) for entry in names)
    now = sum(not entry.until for entry in names)
    yield f"{len(names)} names; {now} of them are in DCGM {RELEASES[-1]}; podgpu gives {given}."
    yield ""
    yield "| id | names | answer |"
    yield "| --- | --- | --- |"
    rows: defaultdict[tuple[int, str, str], list[str]] = defaultdict(list)
    for entry in names:
        rows[entry.id, entry.until, answer(entry.name)].append(_shown(entry))
    for (number, _, text), shown in rows.items():
        yield f"| {number} | {', '.join(shown)} | {text} |"
    for name in OF_DCGM_EXPORTER:
        yield f"| | `{name}` | {answer(name)} |"
