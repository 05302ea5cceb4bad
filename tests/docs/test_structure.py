"""Each page is in the index, begins with an example, has short lines, and links that exist."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import ALL, DOCS, README, ROOT, anchors, links, name, prose, text_of

INDEX = DOCS / "index.md"
RECORDS = DOCS / "adr"
PAGES = [page for page in ALL if DOCS in page.parents and RECORDS not in page.parents]
GROUPS = ["Start here", "Install", "Operate", "Understand", "Reference"]
WIDEST = 100

_UNBREAKABLE = re.compile(r"^[ >*\-\d.]*\S+$")
"""A line of one word, as a long address."""


def test_the_index_has_its_groups_in_order() -> None:
    assert re.findall(r"^## (.*)$", text_of(INDEX), re.MULTILINE) == GROUPS


@pytest.mark.parametrize("page", [page for page in PAGES if page != INDEX], ids=name)
def test_the_index_names_each_page(page: Path) -> None:
    found = [(DOCS / link.partition("#")[0]).resolve() for link in links(INDEX)]
    assert page in found


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_begins_with_an_example(page: Path) -> None:
    """A block or a picture, before the first section and within one screen."""
    lines = text_of(page).splitlines()
    ends = [n for n, line in enumerate(lines) if line.startswith("## ")] or [len(lines)]
    head = lines[: min(ends[0], 24)]
    assert any(line.startswith(("```", "![")) for line in head)


@pytest.mark.parametrize("page", ALL, ids=name)
def test_lines_of_prose_are_short(page: Path) -> None:
    long = [
        f"{number}: {len(line)} characters: {line[:60]}..."
        for number, line in prose(page)
        if len(line) > WIDEST and not _UNBREAKABLE.match(line)
    ]
    assert long == [], f"wrap them: python -m tests.docs.wrap {name(page)}"


@pytest.mark.parametrize("page", ALL, ids=name)
def test_links_lead_to_files_and_to_headings(page: Path) -> None:
    wrong = []
    for link in links(page):
        target, _, anchor = link.partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        file = (page.parent / target).resolve() if target else page
        known = file.is_relative_to(ROOT) and file.exists()
        if not known or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            wrong.append(link)
    assert wrong == []


def test_the_readme_is_short() -> None:
    assert len(text_of(README).split()) <= 700


def test_the_readme_s_pictures_are_small() -> None:
    files = [file for file in (DOCS / "pictures").iterdir() if file.is_file()]
    assert {file.name for file in files} >= {
        Path(link).name for link in links(README) if "pictures" in link
    }
    assert sum(file.stat().st_size for file in files) < 2_000_000
    assert all(file.stat().st_size <= 300_000 for file in files)
