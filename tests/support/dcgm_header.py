"""Compare a header of DCGM with podgpu's table of DCGM's names.

`python -m tests.support.dcgm_header dcgm_fields.h` prints the names that are new, gone or have
another id, and which of the new ones need an answer. It ends with status 1 if one does. With
`--add 4.8` it also adds the header to the table as release 4.8.
"""

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.fields import called, dcgm_names
from pipeline.fields.dcgm_names import RELEASES, DcgmName
from pipeline.fields.unavailable_names import unavailable_reason

TABLE = Path(dcgm_names.__file__).with_name(dcgm_names.FILE)
DEFINE = re.compile(r"^\s*#\s*define\s+(DCGM_FI_\w+)\s+(\w+)\s*(?:/[/*].*)?$", re.MULTILINE)
MARK = re.compile(
    r"DCGM_FI_(FIRST|LAST|MAX|INTERNAL)_\w+|DCGM_FI_DEV_(FIRST|LAST)_\w+"
    r"|DCGM_FI_PROF_\w+_(FIRST|LAST)"
)
"""Names of the ends of ranges of ids. They are no fields."""


class NoHeaderError(Exception):
    """The text has no field ids of DCGM."""


def parse(text: str) -> dict[str, int]:
    """Return the ids of a header by name. A name can be defined as another name, its alias.

    Raises:
        NoHeaderError: no field is defined, or one as a name that is not.
    """
    defined = dict(DEFINE.findall(text))
    ids: dict[str, int] = {}
    for name, written in defined.items():
        value = written
        for _ in defined:
            value = defined.get(value, value)
        if not value.isdecimal():
            raise NoHeaderError(f"{name} is defined as {written}, which is no number")
        if not MARK.fullmatch(name):
            ids[name] = int(value)
    if not ids:
        raise NoHeaderError("no line defines a DCGM_FI_ name; give the path of dcgm_fields.h")
    return ids


@dataclass(frozen=True)
class Difference:
    """What a header has and the table does not, or otherwise.

    Attributes:
        new: names and ids that the table does not have.
        gone: names of the newest release that the header does not have.
        moved: names with another id: the old id and the new one.
        unanswered: new names without field and without reason.
    """

    new: Mapping[str, int]
    gone: Sequence[str]
    moved: Mapping[str, tuple[int, int]]
    unanswered: Sequence[str]


def compare(ids: Mapping[str, int], table: Sequence[DcgmName]) -> Difference:
    """Compare the ids of a header with the table."""
    known = {entry.name: entry for entry in table}
    new = {name: number for name, number in ids.items() if name not in known}
    return Difference(
        new,
        [entry.name for entry in table if not entry.until and entry.name not in ids],
        {
            name: (known[name].id, number)
            for name, number in ids.items()
            if name in known and known[name].id != number
        },
        [name for name in new if not list(called(name)) and unavailable_reason(name) is None],
    )


def report(found: Difference, table: Sequence[DcgmName]) -> Iterator[str]:
    """Yield the lines that the command prints."""
    old = {entry.id: entry.name for entry in table if not entry.until}
    yield f"new: {len(found.new)}"
    for name, number in found.new.items():
        same = f", the id of {old[number]}" if number in old else ""
        need = "; NEEDS AN ANSWER" if name in found.unanswered else ""
        yield f"  {name} {number}{same}{need}"
    yield f"gone: {len(found.gone)}"
    yield from (f"  {name}" for name in found.gone)
    yield f"another id: {len(found.moved)}"
    yield from (f"  {name} {before} -> {now}" for name, (before, now) in found.moved.items())


def with_release(ids: Mapping[str, int], table: Sequence[DcgmName], release: str) -> list[DcgmName]:
    """Return the table with the names of a header, as those of a release."""
    known = {entry.name for entry in table}
    kept = [
        entry._replace(id=ids[entry.name], until="")
        if entry.name in ids
        else entry._replace(until=entry.until or RELEASES[-1])
        for entry in table
    ]
    new = [DcgmName(name, number, release) for name, number in ids.items() if name not in known]
    return sorted([*kept, *new], key=lambda entry: entry.id)


def lines(table: Sequence[DcgmName]) -> str:
    """Return the text of the table's file."""
    return "".join("\t".join(map(str, entry)).rstrip("\t") + "\n" for entry in table)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("header", type=Path, help="dcgm_fields.h of a release of DCGM")
    parser.add_argument("--add", metavar="RELEASE", help="add the names to the table")
    given = parser.parse_args(arguments)
    try:
        ids = parse(given.header.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, NoHeaderError) as error:
        parser.exit(2, f"{given.header}: {error}\n")
    table = tuple(dcgm_names.dcgm_names())
    found = compare(ids, table)
    print("\n".join(report(found, table)))
    if given.add:
        TABLE.write_text(lines(with_release(ids, table, given.add)), encoding="ascii")
        print(f'{TABLE}: written; add "{given.add}" to RELEASES in {dcgm_names.__file__}')
    return 1 if found.unanswered else 0


if __name__ == "__main__":
    raise SystemExit(main())
