"""The tables of checks in the documentation: each check has a row, and each verdict has a test."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.component.registry import KINDS, load

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "troubleshooting.md"
SOURCES = [
    path
    for top in ("pipeline", "podgpu", "sinks", "sources")
    for path in (ROOT / top).rglob("*.py")
]
TESTS = [
    *(ROOT / "tests/podgpu/doctor").rglob("test_*.py"),
    *(ROOT / "tests/pipeline/diagnostics").rglob("test_*.py"),
    *(ROOT / "tests/sources").glob("*/test_doctor*.py"),
    *(ROOT / "tests/sinks").glob("*/test_doctor.py"),
]
VERDICTS = {
    "BOTH": "failure or warning",
    "FAILS": "failure",
    "WARNS": "warning",
    "NONE": "information",
}
"""What a row says for a check with these possible verdicts."""

ROWS = re.findall(
    r"^\| `([a-z]+(?:\.[a-z_]+)?)` \|([^|]+)\| ([a-z ]+): [^|]+\|([^|]+)\|$",
    PAGE.read_text(encoding="utf-8"),
    re.M,
)
WORST = {check: verdicts for check, _, verdicts, _ in ROWS}


@pytest.mark.slow
def test_each_check_is_defined_once_and_has_a_row_with_its_verdicts() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
    defined = Counter(re.findall(r'\bCheck\(\s*"([^"]+)",\s*([A-Z]+)\)', text))
    assert set(defined.values()) == {1}
    assert {check: VERDICTS[verdicts] for check, verdicts in defined} == WORST
    assert len(defined) == len(ROWS) == len(re.findall(r"\bCheck\(", text))


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
BAD = [
    (check, verdict)
    for check, verdicts in WORST.items()
    for verdict in verdicts.split(" or ")
    if verdict != "information"
]


@pytest.mark.parametrize(("check", "verdict"), BAD, ids=map(" ".join, BAD))
def test_each_possible_verdict_of_each_check_has_a_test(check: str, verdict: str) -> None:
    """`Check` itself ensures that each bad finding has a fix."""
    assert any({check, verdict} <= words for words in WORDS)


@pytest.mark.parametrize("check", WORST)
def test_each_check_has_a_test(check: str) -> None:
    assert any(check in words for words in WORDS)


@pytest.mark.parametrize("entry", KINDS, ids=":".join)
def test_each_kind_registers_the_checks_of_its_package(entry: tuple[str, str]) -> None:
    dotted = KINDS[entry].doctor  # type: ignore[index]
    if dotted:
        assert callable(load(dotted))
        return
    package = ROOT / f"{entry[0]}s" / entry[1]
    assert not (package / "doctor.py").exists(), "its checks are never called"
