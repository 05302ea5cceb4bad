"""The names that DCGM's public header has given its fields, with their ids and releases.

The table `dcgm_names.tsv` has one line per name: the name, the id, the first of the compared
releases that has it, and the last one if a newer one lacks it. Names with the same id are names of
the same value, unless a release took an id for another value after it had removed the name. How to
add a release: `docs/dcgm-names.md`.
"""

from collections.abc import Iterator
from importlib.resources import files
from typing import Final, NamedTuple

RELEASES: Final = ("2", "3.0", "4.1", "4.5", "4.6", "4.7")
"""The releases whose headers were compared. A name may have appeared between two of them."""

FILE: Final = "dcgm_names.tsv"


class DcgmName(NamedTuple):
    """A name of a field of DCGM.

    Attributes:
        name: the name.
        id: number of the field in DCGM; in the last release that has the name.
        since: the first of `RELEASES` that has the name.
        until: the last of `RELEASES` that has the name; empty if the newest has it.
    """

    name: str
    id: int
    since: str
    until: str = ""


def dcgm_names() -> Iterator[DcgmName]:
    """Read the table, in the order of the ids. It is not kept: normal operation does not need it.

    Raises:
        OSError: the file cannot be read.
    """
    for line in files(__package__).joinpath(FILE).read_text(encoding="ascii").splitlines():
        name, number, since, *until = line.split("\t")
        yield DcgmName(name, int(number), since, *until)
