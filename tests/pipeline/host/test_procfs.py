"""What procfs' files tell, whole and broken."""

import os
from pathlib import Path

import pytest

from pipeline.host.procfs import HOST_PID_NAMESPACE, ROOT, read, started_ticks, uptime_ns
from pipeline.model import NS

BEFORE = "S " + " ".join(map(str, range(4, 22)))
"""The fields from the state up to the one before the start."""

STATS = {
    "a process": (f"7 (python) {BEFORE} 4711 23 24\n", 4711),
    "that began with the machine": (f"2 (kthreadd) {BEFORE} 0 0\n", 0),
    "a name with a space": (f"7 (tmux: server) {BEFORE} 4711\n", 4711),
    "a name with brackets": (f"7 () S 1 (x)) {BEFORE} 4711\n", 4711),
    "a name that looks like fields": (f"7 (x) {BEFORE} 1 2) {BEFORE} 4711\n", 4711),
    "no name": (f"7 () {BEFORE} 4711\n", 4711),
    "nothing": ("", None),
    "cut off before it": (f"7 (python) {BEFORE}", None),
    "no number": (f"7 (python) {BEFORE} x\n", None),
    "below 0": (f"7 (python) {BEFORE} -1\n", None),
}

UPTIMES = {
    "as it is": ("1234.56 9876.54\n", 1_234_560_000_000),
    "just started": ("0.00 0.00\n", 0),
    "one number": ("500", 500 * NS),
    "nothing": ("", None),
    "blank": (" \n", None),
    "words": ("up 1 day\n", None),
    "no number at all": ("nan 1\n", None),
    "without an end": ("inf 1\n", None),
    "more than a number holds": ("1e400 1\n", None),
}


@pytest.mark.parametrize(("text", "ticks"), STATS.values(), ids=STATS)
def test_when_a_process_began(text: str, ticks: int | None) -> None:
    assert started_ticks(text) == ticks


@pytest.mark.parametrize(("text", "ns"), UPTIMES.values(), ids=UPTIMES)
def test_for_how_long_the_machine_has_been_up(text: str, ns: int | None) -> None:
    assert uptime_ns(text) == ns


def test_what_can_t_be_read_is_empty(tmp_path: Path) -> None:
    assert read(tmp_path / "nowhere") == ""
    assert read(tmp_path) == ""


def test_bytes_that_are_no_text_hide_nothing(tmp_path: Path) -> None:
    (tmp_path / "stat").write_bytes(f"7 (\xff) {BEFORE} 4711\n".encode("latin-1"))
    assert started_ticks(read(tmp_path / "stat")) == 4711


def test_this_machine_s_own() -> None:
    up_ns = uptime_ns(read(ROOT / "uptime"))
    ticks = started_ticks(read(ROOT / f"{os.getpid()}/stat"))
    assert up_ns is not None
    assert ticks is not None
    assert 0 < ticks * (NS // os.sysconf("SC_CLK_TCK")) <= up_ns + NS
    assert str((ROOT / "self/ns/pid").readlink()).startswith(HOST_PID_NAMESPACE.partition("[")[0])
