"""`python -m tests.support.words`: refuse words that readers stumble over, in all our text.

Words within identifiers count too. Each word has a reason and a replacement. The list is short on
purpose: all other advice is in CONTRIBUTING.md.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]

_FOLDERS: Final = (
    "podgpu",
    "pipeline",
    "sources",
    "sinks",
    "config",
    "docs",
    "deploy",
    "image",
    "tests",
)
_FILES: Final = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "Dockerfile",
    "Makefile",
)
_SUFFIXES: Final = frozenset(
    {".py", ".md", ".yaml", ".yml", ".json", ".html", ".js", ".css", ".tpl", ".txt", ".sh", ".toml"}
)


class Refused(NamedTuple):
    """A word that is refused.

    Attributes:
        pattern: a regular expression; a letter before or after it makes it another word.
        instead: what to write.
        reason: why readers stumble over it.
    """

    pattern: str
    instead: str
    reason: str


REFUSED: Final = (
    Refused(r"mend(?:s|ed|ing)?", "fix", "rare in technical English"),
    Refused(r"nobody(?:'s)?", "no one, no container, unattributed", "it hides what is missing"),
    Refused(r"somebody(?:'s)?", "a user, another program", "it hides who acts"),
    Refused(r"let(?:s|ting)?[ _]go", "release, close, drop", "an idiom"),
    Refused(r"(?:beg[aiu]ns?|start(?:s|ed)?)[ _]anew", "restart, start at zero", "two meanings"),
    Refused(r"anew", "again, new", "rare, and it has two meanings"),
    Refused(r"tell(?:s|ing)?|told", "report, show, log, return", "it hides how and to whom"),
    Refused(r"by (?:whose|its|their|the [a-z]+'s) word", "according to, reported by", "an idiom"),
    Refused(r"stands? by", "confirm", "an idiom"),
    Refused(r"let be", "leave unchanged", "an idiom"),
    Refused(r"com(?:es?|ing) to nothing", "has no effect", "an idiom"),
    Refused(
        r"go(?:es)? on|went on|going on", "continue, still", "a phrasal verb with many meanings"
    ),
    Refused(r"for good", "permanently", "it also means 'with good intent'"),
    Refused(r"heed(?:s|ed|ing)?", "follow, obey", "rare in technical English"),
    Refused(r"reckon(?:s|ed|ing)?", "calculate, count", "rare in technical English"),
    Refused(r"hearsay", "report", "an idiom"),
)


KEPT: Final = ('"mend"', "`mend`", "GPU timed out for good")
"""Names in formats that other programs read: a JSON key of the doctor, the text of an XID code."""


class Found(NamedTuple):
    """A refused word in a line of a file."""

    path: Path
    line: int
    word: str
    refused: Refused


def texts(root: Path) -> Iterator[Path]:
    """Yield the files that people read, without this list, its test and recorded data."""
    own = {Path(__file__).resolve(), root / "tests" / "test_words.py"}
    for name in _FILES:
        if (root / name).exists():
            yield root / name
    for folder in _FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in _SUFFIXES and path.is_file() and path.resolve() not in own:
                yield path


def search(text: str, path: Path) -> Iterator[Found]:
    """Yield the refused words of a text."""
    for number, full in enumerate(text.splitlines(), 1):
        line = full
        for kept in KEPT:
            line = line.replace(kept, "")
        for match in _ANY.finditer(line):
            yield Found(path, number, match[0], REFUSED[_index(match)])


def _index(match: re.Match[str]) -> int:
    return next(at for at, group in enumerate(match.groups()) if group is not None)


_ANY: Final = re.compile(
    r"(?<![a-z])(?:" + "|".join(f"({one.pattern})" for one in REFUSED) + r")(?![a-z])",
    re.IGNORECASE,
)


def main() -> int:
    """Print all refused words; return 1 if there are any."""
    found = [
        each
        for path in texts(ROOT)
        for each in search(path.read_text("utf-8"), path.relative_to(ROOT))
    ]
    for each in found:
        print(
            f"{each.path}:{each.line}: {each.word!r}: write {each.refused.instead} "
            f"({each.refused.reason})"
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
