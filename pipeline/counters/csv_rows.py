"""From the text of a counters list to its rows: `FIELD, type, help`, one a line.

What dcgm-exporter reads is read to the same effect; what it refuses is read where there is one
meaning that it can have. Nothing here knows which fields there are.
"""

import re
from dataclasses import dataclass
from typing import Final

from config.message_text import shown

_BREAK: Final = re.compile(r"\r\n|\n|\r")
# Possessive throughout: a line of a megabyte takes no longer than its length is worth.
_CELL: Final = re.compile(r'\s*+(?:"((?:[^"]|"")*+)"|([^",]*+))\s*+(?:,|$)')
_QUOTED: Final = re.compile(r'"((?:[^"]|"")*+)"')


@dataclass(frozen=True, slots=True)
class ListRow:
    """A row as it is written.

    Attributes:
        line: number of its line, from 1.
        name: of the field.
        type: in lower case.
        help: may be empty.
    """

    line: int
    name: str
    type: str
    help: str


@dataclass(frozen=True, slots=True)
class Complaint:
    """Why a line is left out.

    Attributes:
        line: its number, from 1.
        text: what is wrong, and the mend where there is one.
    """

    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}"


def read(text: str) -> tuple[list[ListRow], list[Complaint]]:
    """Return the rows of a list, and the lines that are neither row, comment nor blank."""
    rows: list[ListRow] = []
    complaints: list[Complaint] = []
    for number, line in enumerate(_BREAK.split(text.removeprefix("\ufeff")), 1):
        # A table program fills its rows up with commas, comments and empty ones among them.
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
    """Return the row, or what is wrong with it."""
    name = _CELL.match(content)
    if name is None:
        return f"{shown(content)} has a quotation mark out of place"
    if name.end() == len(content):
        return f"{shown(content)} has no type; write FIELD, type, help"
    type_ = _CELL.match(content, name.end())
    if type_ is None:
        return f"{shown(content)} has a quotation mark out of place"
    called, kind = _value(name), _value(type_).lower()
    if not called or not kind:
        return f"{shown(content)} has no {'type' if called else 'name'}; write FIELD, type, help"
    about = content[type_.end() :].strip()
    quoted = _QUOTED.match(about)
    if quoted is None and about.startswith('"'):
        return f"{shown(called)}: the quotation of its help does not end on the line"
    if quoted is not None and quoted.end() == len(about):
        about = quoted[1].replace('""', '"').strip()
    return ListRow(number, called, kind, about)


def _value(cell: re.Match[str]) -> str:
    quoted, plain = cell.groups()
    return (plain if quoted is None else quoted.replace('""', '"')).strip()
