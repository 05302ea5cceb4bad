"""Reads files of procfs, and parses start time, process name and uptime."""

import os
from pathlib import Path
from typing import Final

from pipeline.model import NS

ROOT: Final = Path("/proc")
"""The path of procfs."""

HOST_PID_NAMESPACE: Final = "pid:[4026531836]"
"""The initial PID namespace, whose number is fixed in the kernel (PROC_PID_INIT_INO)."""

_START_TIME_FIELD: Final = 22
"""Number of the field in `stat` with the start time of a process (proc_pid_stat(5))."""
_MAX_BYTES: Final = 1 << 16


def read(path: Path) -> str:
    """Return the first 64 KiB of a file of procfs; an empty text on errors. Blocking."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(file, _MAX_BYTES).decode(errors="replace")
        finally:
            os.close(file)
    except OSError:
        return ""


def started_ticks(text: str) -> int | None:
    """Return the start time of a process in clock ticks since boot; None if it is missing.

    Args:
        text: content of `/proc/PID/stat`.
    """
    # The name before it is in parentheses, and may itself contain parentheses and spaces.
    fields = text.rpartition(")")[2].split()
    index = _START_TIME_FIELD - 3
    return int(fields[index]) if len(fields) > index and fields[index].isdecimal() else None


def name(text: str) -> str:
    """Return the name of a process; empty if it is missing. The kernel keeps 15 characters of it.

    Args:
        text: content of `/proc/PID/stat`.
    """
    return text.partition("(")[2].rpartition(")")[0]


def uptime_ns(text: str) -> int | None:
    """Return the machine's uptime in nanoseconds; None if it is missing.

    Args:
        text: content of `/proc/uptime`, which begins with seconds with two decimals
            (proc_uptime(5)).
    """
    try:
        return round(float(text.split(maxsplit=1)[0]) * NS)
    except (IndexError, OverflowError, ValueError):
        return None
