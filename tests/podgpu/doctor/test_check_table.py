"""The table of checks: it equals the documentation, and each check and verdict has a test."""

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.component.check import Check
from pipeline.component.registry import KINDS, load
from pipeline.diagnostics import shared_checks
from podgpu.doctor.check_table import CHECKS, GROUPS, markdown_table

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "troubleshooting.md"
SOURCES = [
    *(ROOT / "podgpu/doctor").rglob("*.py"),
    *(ROOT / "pipeline/diagnostics").rglob("*.py"),
    *(ROOT / "podgpu/cli/doctor").glob("*.py"),
    *(ROOT / "sources").rglob("*.py"),
    *(ROOT / "sinks").rglob("*.py"),
]
TESTS = [
    *(ROOT / "tests/podgpu/doctor").rglob("test_*.py"),
    *(ROOT / "tests/pipeline/diagnostics").rglob("test_*.py"),
    *(ROOT / "tests/sources").glob("*/test_doctor*.py"),
    *(ROOT / "tests/sinks").glob("*/test_doctor.py"),
]


@pytest.mark.parametrize("group", GROUPS)
def test_the_tables_in_the_documentation_equal_the_table_of_checks(group: str) -> None:
    """`PODGPU_WRITE_GOLDEN=1` writes them again."""
    table = "\n".join(markdown_table(GROUPS[group])) + "\n"
    place = re.compile(rf"(?<=^## {group}$)(.*?)(^\| check .*?)(?=^[^|]|\Z)", re.M | re.S)
    page = PAGE.read_text(encoding="utf-8")
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        page = place.sub(lambda found: found[1] + table, page)
        PAGE.write_text(page, encoding="utf-8")
    found = place.search(page)
    assert found is not None
    assert found[2].rstrip() + "\n" == table


def test_each_check_has_one_row_and_cells_without_line_breaks() -> None:
    assert sum(map(len, GROUPS.values())) == len(CHECKS)
    for check in CHECKS.values():
        assert re.fullmatch(r"[a-z]+(\.[a-z_]+)?", check.id)
        for cell in (check.subject, check.consequence, check.fix):
            assert cell, check.id
            assert "|" not in cell, check.id
            assert "\n" not in cell, check.id


def test_exactly_the_checks_with_a_row_are_used_in_code() -> None:
    paths = [path for path in SOURCES if path.name != "shared_checks.py"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    shared = {name: each for name, each in vars(shared_checks).items() if isinstance(each, Check)}
    used = {each.id for name, each in shared.items() if len(re.findall(rf"\b{name}\b", text)) > 1}
    assert set(re.findall(r'CHECKS\["([^"]+)"\]', text)) | used == set(CHECKS)


def words_of_tests(module: ast.Module) -> Iterator[set[str]]:
    """Yield the words of each test: its own, and those of the tables and helpers that it uses.

    A verdict appears as `Verdict.WARNING` or as "warning".
    """
    parts: dict[str, ast.stmt] = {}
    for part in module.body:
        for name in ast.walk(part):
            if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
                parts.setdefault(name.id, part)
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            parts[part.name] = part
    for test, statement in parts.items():
        if not test.startswith("test_"):
            continue
        words, names = set[str](), {test}
        left: list[ast.AST] = [statement]
        while left:
            for node in ast.walk(left.pop()):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    words.add(node.value)
                elif isinstance(node, ast.Attribute):
                    words.add(node.attr.lower())
                elif isinstance(node, ast.Name) and node.id in parts and node.id not in names:
                    names.add(node.id)
                    left.append(parts[node.id])
        yield words | names


WORDS = [
    words for path in TESTS for words in words_of_tests(ast.parse(path.read_text(encoding="utf-8")))
]
VERDICTS = [
    (check, verdict.value)
    for check in CHECKS.values()
    for verdict in sorted(check.possible_verdicts, key=lambda each: each.value)
]


@pytest.mark.parametrize(("check", "verdict"), VERDICTS, ids=[f"{c.id} {v}" for c, v in VERDICTS])
def test_each_possible_verdict_of_each_check_has_a_test(check: Check, verdict: str) -> None:
    """`Check` itself ensures that each bad finding has a fix."""
    assert any({check.id, verdict} <= words for words in WORDS)


@pytest.mark.parametrize("check", CHECKS.values(), ids=lambda check: check.id)
def test_each_check_has_a_test(check: Check) -> None:
    assert any(check.id in words for words in WORDS)


@pytest.mark.parametrize("entry", KINDS, ids=":".join)
def test_each_kind_registers_the_checks_of_its_package(entry: tuple[str, str]) -> None:
    dotted = KINDS[entry].doctor  # type: ignore[index]
    if dotted:
        assert callable(load(dotted))
        return
    package = ROOT / f"{entry[0]}s" / entry[1]
    assert not (package / "doctor.py").exists(), "its checks are never called"
