"""Texts of others on a terminal."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgpu.cli.output import lines


@given(st.text())
def test_nothing_is_left_that_a_terminal_acts_on(text: str) -> None:
    made = lines(text)
    assert len(made) == len(text)
    for before, after in zip(text, made, strict=True):
        assert after == (before if before == "\n" or before.isprintable() else " ")


@pytest.mark.parametrize("text", ["", "\n", "a\n\n  ├─ b │ é 漢\n", "x" * 10_000])
def test_what_is_harmless_stays(text: str) -> None:
    assert lines(text) == text


@pytest.mark.parametrize(
    ("shell", "status", "said"),
    [
        ('exec "$@" >/dev/full', 3, "the findings can't be written: No space left on device\n"),
        ('exec "$@" >&-', 3, "the findings can't be written: there is no stdout\n"),
        ('exec "$@" >&- 2>&-', 3, ""),
        ('exec "$@" >/dev/full 2>/dev/full', 3, ""),
    ],
)
def test_a_doctor_without_a_reader_says_so(shell: str, status: int, said: str) -> None:
    words = ["bash", "-c", shell, "bash", sys.executable, "-m", "podgpu", "doctor", "-c", "/no"]
    done = subprocess.run(words, stderr=subprocess.PIPE, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (status, said and f"podgpu doctor: {said}")
