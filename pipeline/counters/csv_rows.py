"""Parses the text of a counters list into rows: `FIELD, type, help`, one per line.

A list that dcgm-exporter accepts has the same meaning here. A line that it refuses is accepted if
it can only have one meaning. This module does not know which fields exist.
"""

import re
from dataclasses import dataclass
from typing import Final

from config.message_text import shown

_BREAK: Final = re.compile(r"\r\n|\n|\r")
# Possessive quantifiers, so that the time is linear in the length of a line.
_CELL: Final = re.compile(r'\s*+(?:"((?:[^"]|"")*+)"|([^",]*+))\s*+(?:,|$)')
_QUOTED: Final = re.compile(r'"((?:[^"]|"")*+)"')


@dataclass(frozen=True, slots=True)
class ListRow:
    """A row as it is written in the list.

    Attributes:
        line: line number, from 1.
        name: the field's name.
        type: the type in lower case.
        help: help text; may be empty.
    """

    line: int
    name: str
    type: str
    help: str


@dataclass(frozen=True, slots=True)
class Complaint:
    """Why a line is skipped.

    Attributes:
        line: line number, from 1.
        text: the problem, and how to fix it if possible.
    """

    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}"


def read(text: str) -> tuple[list[ListRow], list[Complaint]]:
    """Return the rows of a list, and complaints about lines that are no row, comment or blank."""
    rows: list[ListRow] = []
    complaints: list[Complaint] = []
    for number, line in enumerate(_BREAK.split(text.removeprefix("\ufeff")), 1):
        # A spreadsheet program may pad all lines with commas, including comments and empty lines.
        content = line.strip().rstrip(", \t")
        if not content or content.startswith(("#", '"#')):
            continue
        found = _row(number, content)
        if isinstance(found, ListRow):
            rows.append(found)
        else:
            complaints.append(Complaint(number, found))
    return rows, complaints


def _row(number: int, content: str) -> ListRow | str:
    """Return the row, or a text with the problem."""
    name = _CELL.match(content)
    if name is None:
        return f"{shown(content)} has a quotation mark out of place"
    if name.end() == len(content):
        return f"{shown(content)} has no type; write FIELD, type, help"
    type_ = _CELL.match(content, name.end())
    if type_ is None:
        return f"{shown(content)} has a quotation mark out of place"
    field_name, kind = _value(name), _value(type_).lower()
    if not field_name or not kind:
        return (
            f"{shown(content)} has no {'type' if field_name else 'name'}; write FIELD, type, help"
        )
    about = content[type_.end() :].strip()
    quoted = _QUOTED.match(about)
    if quoted is None and about.startswith('"'):
        return f"{shown(field_name)}: the quoted help text does not end on the line"
    if quoted is not None and quoted.end() == len(about):
        about = quoted[1].replace('""', '"').strip()
    return ListRow(number, field_name, kind, about)


def _value(cell: re.Match[str]) -> str:
    quoted, plain = cell.groups()
    return (plain if quoted is None else quoted.replace('""', '"')).strip()
