"""Tests of values read from files of procfs, valid and damaged."""

import os
from pathlib import Path

import pytest

from pipeline.host.procfs import HOST_PID_NAMESPACE, ROOT, read, started_ticks, uptime_ns
from pipeline.model import NS

BEFORE = "S " + " ".join(map(str, range(4, 22)))
"""The fields from the state up to the one before the start."""

STATS = {
    "a process": (f"7 (python) {BEFORE} 4711 23 24\n", 4711),
    "a process that started with the machine": (f"2 (kthreadd) {BEFORE} 0 0\n", 0),
    "a name with a space": (f"7 (tmux: server) {BEFORE} 4711\n", 4711),
    "a name with brackets": (f"7 () S 1 (x)) {BEFORE} 4711\n", 4711),
    "a name that looks like fields": (f"7 (x) {BEFORE} 1 2) {BEFORE} 4711\n", 4711),
    "no name": (f"7 () {BEFORE} 4711\n", 4711),
    "empty": ("", None),
    "cut off before the start": (f"7 (python) {BEFORE}", None),
    "not a number": (f"7 (python) {BEFORE} x\n", None),
    "negative": (f"7 (python) {BEFORE} -1\n", None),
}

UPTIMES = {
    "a usual value": ("1234.56 9876.54\n", 1_234_560_000_000),
    "just started": ("0.00 0.00\n", 0),
    "one number": ("500", 500 * NS),
    "empty": ("", None),
    "blank": (" \n", None),
    "not a number": ("up 1 day\n", None),
    "nan": ("nan 1\n", None),
    "infinity": ("inf 1\n", None),
    "out of range": ("1e400 1\n", None),
}


@pytest.mark.parametrize(("text", "ticks"), STATS.values(), ids=STATS)
def test_the_start_of_a_process_is_read(text: str, ticks: int | None) -> None:
    assert started_ticks(text) == ticks


@pytest.mark.parametrize(("text", "ns"), UPTIMES.values(), ids=UPTIMES)
def test_the_uptime_of_the_machine_is_read(text: str, ns: int | None) -> None:
    assert uptime_ns(text) == ns


def test_an_unreadable_file_is_an_empty_text(tmp_path: Path) -> None:
    assert read(tmp_path / "nowhere") == ""
    assert read(tmp_path) == ""


def test_a_name_that_is_not_utf8_does_not_hide_the_start(tmp_path: Path) -> None:
    (tmp_path / "stat").write_bytes(f"7 (\xff) {BEFORE} 4711\n".encode("latin-1"))
    assert started_ticks(read(tmp_path / "stat")) == 4711


def test_the_files_of_this_machine_are_read() -> None:
    up_ns = uptime_ns(read(ROOT / "uptime"))
    ticks = started_ticks(read(ROOT / f"{os.getpid()}/stat"))
    assert up_ns is not None
    assert ticks is not None
    assert 0 < ticks * (NS // os.sysconf("SC_CLK_TCK")) <= up_ns + NS
    assert str((ROOT / "self/ns/pid").readlink()).startswith(HOST_PID_NAMESPACE.partition("[")[0])
