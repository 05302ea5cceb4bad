"""`docs/threat-model.md` describes the attacker of each threat, and names tests that exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
TEST = re.compile(r"`(tests/[a-z0-9_/]+\.py)::(test_[a-z0-9_]+)`")


def table(heading: str) -> list[list[str]]:
    part = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


TRUST = {row[0]: row for row in table("Who is trusted with what")}
THREATS = table("Threats")
NAMED = sorted({found for row in THREATS for found in TEST.findall(row[-1])})
OUTSIDE = {"who has taken podgpu over", "who may publish packages"}
"""Attackers that are trusted with nothing; what they already did makes them attackers."""
BEYOND = {"administrator of the cluster or node"}
"""Trusted with everything: nothing is protected against them."""


def test_all_cells_are_filled() -> None:
    assert all(len(row) == 3 and row[1] for row in TRUST.values())
    assert all(len(row) == 6 and all(row) for row in THREATS)


def test_attackers_of_threats_are_the_described_ones() -> None:
    attackers = {row[1] for row in THREATS}
    assert attackers - OUTSIDE == set(TRUST) - BEYOND
    assert attackers >= OUTSIDE


@pytest.mark.parametrize("row", THREATS, ids=lambda row: f"{row[0]}: {row[1]}"[:60])
def test_the_last_cell_of_each_threat_lists_only_tests(row: list[str]) -> None:
    named = [f"`{path}::{name}`" for path, name in TEST.findall(row[-1])]
    assert named
    assert ", ".join(named) == row[-1]


@cache
def names_in(path: str) -> set[str]:
    """Return the names of a file's tests, those of its classes too."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


@pytest.mark.parametrize(("path", "name"), NAMED, ids=[name for _, name in NAMED])
def test_each_named_test_exists(path: str, name: str) -> None:
    assert name in names_in(path)


def test_the_security_policy_links_to_the_page_and_contains_no_address() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "(docs/threat-model.md)" in text
    assert "private vulnerability reporting" in text
    assert not re.search(r"\S+@\S+\.\w+|https?://", text)
