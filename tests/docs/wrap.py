"""Wrap the prose of pages at 100 characters: `python -m tests.docs.wrap PAGE ...`.

Paragraphs and list items that have a long line are wrapped again; blocks, tables, headings and
all other paragraphs stay as they are.
"""

import re
import sys
import textwrap
from pathlib import Path
from typing import Final

WIDTH: Final = 100

_ITEM: Final = re.compile(r"^( *)([-*]|\d+\.) ")
_FIXED: Final = re.compile(r"^ *(?:```|\||#|!\[|<|$)")


def wrapped(text: str) -> str:
    """Return a page with its prose wrapped."""
    found: list[str] = []
    paragraph: list[str] = []
    inside = False

    def end() -> None:
        if any(len(line) > WIDTH for line in paragraph):
            found.extend(_fill(paragraph))
        else:
            found.extend(paragraph)
        paragraph.clear()

    for line in text.split("\n"):
        fence = line.lstrip().startswith("```")
        if fence or inside or _FIXED.match(line):
            end()
            found.append(line)
            inside = inside != fence
            continue
        if _ITEM.match(line):
            end()
        paragraph.append(line)
    end()
    return "\n".join(found)


def _fill(paragraph: list[str]) -> list[str]:
    item = _ITEM.match(paragraph[0])
    indent = " " * (len(item[0]) if item else len(paragraph[0]) - len(paragraph[0].lstrip()))
    first = item[0] if item else indent
    words = " ".join(line.strip() for line in [paragraph[0][len(first) :], *paragraph[1:]])
    return textwrap.wrap(
        words,
        WIDTH,
        initial_indent=first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def main(pages: list[str]) -> None:
    """Wrap these pages."""
    for each in pages:
        page = Path(each)
        page.write_text(wrapped(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
