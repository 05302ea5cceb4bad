"""Text of other programs is printed to a terminal without control characters."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgpu.cli.output import lines


@given(st.text())
def test_control_characters_are_replaced_by_blanks(text: str) -> None:
    printed = lines(text)
    assert len(printed) == len(text)
    for before, after in zip(text, printed, strict=True):
        assert after == (before if before == "\n" or before.isprintable() else " ")


@pytest.mark.parametrize("text", ["", "\n", "a\n\n  ├─ b │ é 漢\n", "x" * 10_000])
def test_printable_text_is_unchanged(text: str) -> None:
    assert lines(text) == text


@pytest.mark.parametrize(
    ("shell", "status", "message"),
    [
        ('exec "$@" >/dev/full', 3, "the findings can't be written: No space left on device\n"),
        ('exec "$@" >&-', 3, "the findings can't be written: there is no stdout\n"),
        ('exec "$@" >&- 2>&-', 3, ""),
        ('exec "$@" >/dev/full 2>/dev/full', 3, ""),
    ],
)
def test_findings_that_cannot_be_written_are_an_error(
    shell: str, status: int, message: str
) -> None:
    words = ["bash", "-c", shell, "bash", sys.executable, "-m", "podgpu", "doctor", "-c", "/no"]
    done = subprocess.run(words, stderr=subprocess.PIPE, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (status, message and f"podgpu doctor: {message}")
