"""The examples in docs/reports.md equal the output of the command."""

import os
import re
import shlex
from pathlib import Path

import pytest

from podgpu.cli.usage.options import FORMATS
from tests.podgpu.cli.usage.test_command import report
from tests.podgpu.cli.usage.usage_command import run

PAGE = Path(__file__).resolve().parents[4] / "docs" / "reports.md"
EXAMPLE = re.compile(r"^```\n\$ podgpu usage ?(.*)\n((?:(?!```).*\n)*)```$", re.MULTILINE)


def examples() -> list[str]:
    return [found[1] for found in EXAMPLE.finditer(PAGE.read_text(encoding="utf-8"))]


def test_the_page_has_examples() -> None:
    assert len(examples()) >= 5


@pytest.mark.parametrize("words", examples())
def test_an_example_equals_the_output(
    ledger: Path, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    """`PODGPU_WRITE_GOLDEN=1` writes the examples again."""
    code, out, err = run(capsys, "--ledger", ledger, *shlex.split(words))
    assert (code, err) == (0, "")
    page = PAGE.read_text(encoding="utf-8")
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        command = f"$ podgpu usage {words}".rstrip()
        page = EXAMPLE.sub(
            lambda found: f"```\n{command}\n{out}```" if found[1] == words else found[0], page
        )
        PAGE.write_text(page, encoding="utf-8")
    [shown] = [found[2] for found in EXAMPLE.finditer(page) if found[1] == words]
    assert shown == out


def test_each_json_key_is_documented(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    documents = [
        report(ledger, capsys),
        report(ledger, capsys, "--by", "workload"),
        report(ledger, capsys, "--holdings"),
    ]
    keys = {
        key
        for document in documents
        for part in (document, *(e[0] for e in document.values() if isinstance(e, list) and e))
        for key in part
    }
    assert {"rows", "held_seconds", "owner_name", "busy_peak_ratio"} <= keys
    assert [key for key in sorted(keys) if f"`{key}`" not in page] == []


def test_each_option_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    page = "".join(each.read_text(encoding="utf-8") for each in sorted(PAGE.parent.glob("*.md")))
    _, out, _ = run(capsys, "--help")
    options = set(re.findall(r"--[a-z-]+", out)) - {"--help", "--config"}
    assert [option for option in sorted(options) if option not in page] == []
    assert all(f"`{form}`" in page for form in FORMATS)
