"""The examples of docs/reports.md are what the command prints."""

import os
import re
import shlex
from pathlib import Path

import pytest

from podgpu.cli.usage.arguments import FORMATS
from tests.podgpu.cli.usage.asked import run
from tests.podgpu.cli.usage.test_command import given_out

PAGE = Path(__file__).resolve().parents[4] / "docs" / "reports.md"
EXAMPLE = re.compile(r"^```\n\$ podgpu usage ?(.*)\n((?:(?!```).*\n)*)```$", re.MULTILINE)


def examples() -> list[str]:
    return [found[1] for found in EXAMPLE.finditer(PAGE.read_text(encoding="utf-8"))]


def test_there_are_examples() -> None:
    assert len(examples()) >= 5


@pytest.mark.parametrize("words", examples())
def test_an_example_is_what_is_printed(
    ledger: Path, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    """`PODGPU_WRITE_GOLDEN=1` writes them anew."""
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


def test_each_key_is_reported(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    documents = [
        given_out(ledger, capsys),
        given_out(ledger, capsys, "--by", "workload"),
        given_out(ledger, capsys, "--holdings"),
    ]
    keys = {
        key
        for document in documents
        for part in (document, *(each[0] for each in document.values() if isinstance(each, list)))
        for key in part
    }
    assert {"rows", "held_seconds", "owner_name", "busy_peak_ratio"} <= keys
    assert [key for key in sorted(keys) if f"`{key}`" not in page] == []


def test_each_option_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    _, out, _ = run(capsys, "--help")
    options = set(re.findall(r"--[a-z-]+", out)) - {"--help", "--config"}
    assert [option for option in sorted(options) if option not in page] == []
    assert all(f"`{form}`" in page for form in FORMATS)
