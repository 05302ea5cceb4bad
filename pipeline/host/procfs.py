"""What procfs tells of processes, as text and as numbers."""

import os
from pathlib import Path
from typing import Final

from pipeline.model import NS

ROOT: Final = Path("/proc")
"""Procfs' own place."""

HOST_PID_NAMESPACE: Final = "pid:[4026531836]"
"""The kernel gives the first of all pid namespaces this number (PROC_PID_INIT_INO)."""

_STARTED: Final = 22
"""Number of the field in `stat` that tells when a process began (proc_pid_stat(5))."""
_LONGEST: Final = 1 << 16


def read(path: Path) -> str:
    """Read one of procfs' files, which are short; empty where that can't be done. Blocking."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(file, _LONGEST).decode(errors="replace")
        finally:
            os.close(file)
    except OSError:
        return ""


def started_ticks(text: str) -> int | None:
    """Return when a process began, in clock ticks since the machine's start; None if not told.

    Args:
        text: of `/proc/PID/stat`.
    """
    # The name before it stands in brackets and may have brackets and spaces itself.
    fields = text.rpartition(")")[2].split()
    place = _STARTED - 3
    return int(fields[place]) if len(fields) > place and fields[place].isdecimal() else None


def name(text: str) -> str:
    """Return the name of a process, of which the kernel keeps 15 letters; empty if not told.

    Args:
        text: of `/proc/PID/stat`.
    """
    return text.partition("(")[2].rpartition(")")[0]


def uptime_ns(text: str) -> int | None:
    """Return for how long the machine has been up, in nanoseconds; None if not told.

    Args:
        text: of `/proc/uptime`: seconds with two digits behind the point come first
            (proc_uptime(5)).
    """
    try:
        return round(float(text.split(maxsplit=1)[0]) * NS)
    except (IndexError, OverflowError, ValueError):
        return None
