"""The pages of the documentation, and their parts."""

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
ALL: Final = (*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md")))
"""The README, the other pages next to it, and all pages below `docs`."""
README: Final = ROOT / "README.md"

_FENCE: Final = re.compile(r"^ *```")
_BLOCK: Final = re.compile(r"^```([a-z]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"^ *```.*?^ *```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_HEADING: Final = re.compile(r"^#+ (.*)$", re.MULTILINE)
_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)|<(https?://[^>\s]+)>")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def links(page: Path) -> list[str]:
    """Return the targets of all links and pictures outside of code."""
    return [first or second for first, second in _LINK.findall(_CODE.sub("code", text_of(page)))]


def anchors(page: Path) -> set[str]:
    """Return the anchors of all headings, as GitHub makes them."""
    found: dict[str, int] = {}
    text = re.sub(r"^ *```.*?^ *```$", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    made = set()
    for heading in _HEADING.findall(text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        anchor = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
        number = found.get(anchor, 0)
        found[anchor] = number + 1
        made.add(f"{anchor}-{number}" if number else anchor)
    return made


def blocks(page: Path, language: str = "") -> list[str]:
    """Return the fenced blocks of a language; without one, those of commands and output."""
    return [text for found, text in _BLOCK.findall(text_of(page)) if found == language]


def prose(page: Path) -> list[tuple[int, str]]:
    """Return the numbers and texts of all lines outside of blocks and tables."""
    found, inside = [], False
    for number, line in enumerate(text_of(page).splitlines(), 1):
        if _FENCE.match(line):
            inside = not inside
        elif not inside and not line.lstrip().startswith("|"):
            found.append((number, line))
    return found
