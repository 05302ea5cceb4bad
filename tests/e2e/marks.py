"""Marks that show to which test run a program belongs, and whether that run has ended.

The mark is in the environment of each program that a run starts, and is inherited by its children,
such as shims that outlive containerd. A run has ended when its process is gone, so no lock and no
folder is needed.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

RUN = "PODGPU_E2E_RUN"
"""The variable that contains the mark of the run."""

NODE = "PODGPU_E2E_NODE"
"""A variable that only the programs of a run's Kubernetes node have."""

_PROC = Path("/proc")
_STATE, _STARTED = 0, 19
"""Fields of /proc/PID/stat after the name, see proc_pid_stat(5)."""


def own() -> str:
    """Return the mark of this run."""
    return f"{os.getpid()}.{_since(os.getpid())}.{_namespace()}"


def over(mark: str) -> bool:
    """Return whether the run with this mark has ended.

    A run in another PID namespace cannot be checked; then the result is False.
    """
    try:
        pid, since, namespace = map(int, mark.split("."))
    except ValueError:
        return False
    return namespace == _namespace() and _since(pid) != since


def marked() -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield the pid and the environment of each program with a mark."""
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            variables = _environment(entry)
            if RUN in variables:
                yield int(entry.name), variables


def _environment(process: Path) -> Mapping[str, str]:
    try:
        found = (process / "environ").read_bytes()
    except OSError:  # it has ended, or belongs to another user
        return {}
    pairs = (each.partition("=") for each in os.fsdecode(found).split("\0") if each)
    return {name: value for name, _, value in pairs}


def _since(pid: int) -> int:
    """Return the start time of a process in ticks since boot; -1 if it does not exist."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return -1
    fields = stat.rpartition(")")[2].split()  # the name may contain any character
    # An ended process stays as a zombie until its parent waits for it.
    return -1 if fields[_STATE] in "ZX" else int(fields[_STARTED])


def _namespace() -> int:
    return (_PROC / "self/ns/pid").stat().st_ino
