"""Parses the text of a counters list into rows: `FIELD, type, help`, one per line.

A list that dcgm-exporter accepts has the same meaning here. A line that dcgm-exporter rejects is
accepted if it can only have one meaning. This module does not know which fields exist.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from config.message_text import shown

_BREAK: Final = re.compile(r"\r\n|\n|\r")
# Possessive quantifiers, so that the time is linear in the length of a line.
_CELL: Final = re.compile(r'\s*+(?:"((?:[^"]|"")*+)"|([^",]*+))\s*+(?:,|$)')
_QUOTED: Final = re.compile(r'"((?:[^"]|"")*+)"')


@dataclass(frozen=True, slots=True)
class CsvRow:
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


def read(text: str) -> Iterator[CsvRow | str]:
    """Yield the rows of a list, and a text for each line that is no row, comment or blank.

    The text describes the problem of the line.
    """
    for number, line in enumerate(_BREAK.split(text.removeprefix("\ufeff")), 1):
        # A spreadsheet program may pad all lines with commas, including comments and empty lines.
        content = line.strip().rstrip(", \t")
        if content and not content.startswith(("#", '"#')):
            yield _row(number, content)


def _row(number: int, content: str) -> CsvRow | str:
    """Return the row, or a text that describes the problem."""
    name = _CELL.match(content)
    kind = _CELL.match(content, name.end()) if name is not None else None
    if name is None or kind is None:
        return f"line {number}: {shown(content)} has a quotation mark out of place"
    field_name, type_ = _value(name), _value(kind).lower()
    if not field_name or not type_:
        missing = "type" if field_name else "name"
        return f"line {number}: {shown(content)} has no {missing}; write FIELD, type, help"
    about = content[kind.end() :].strip()
    quoted = _QUOTED.match(about)
    if quoted is None and about.startswith('"'):
        return f"line {number}: {shown(field_name)}: the quoted help text does not end on the line"
    if quoted is not None and quoted.end() == len(about):
        about = quoted[1].replace('""', '"').strip()
    return CsvRow(number, field_name, type_, about)


def _value(cell: re.Match[str]) -> str:
    quoted, plain = cell.groups()
    return (plain if quoted is None else quoted.replace('""', '"')).strip()
