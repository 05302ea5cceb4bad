"""Which run of the tests a program belongs to, and whether that run is over.

The mark stands in the environment of each program that a run starts, and so in that of whatever
those start themselves: of shims, which outlive containerd and whose parent is soon nobody. A run is
over when its process is gone; no lock has to be found, and no folder.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

RUN = "PODGPU_E2E_RUN"
"""A variable: which run has started it."""

NODE = "PODGPU_E2E_NODE"
"""A variable that the programs of a run's node have besides, and its other programs haven't."""

_PROC = Path("/proc")
_STATE, _STARTED = 0, 19
"""Fields of /proc/PID/stat behind the name, see proc_pid_stat(5)."""


def own() -> str:
    """Return the mark of this run."""
    return f"{os.getpid()}.{_since(os.getpid())}.{_namespace()}"


def over(mark: str) -> bool:
    """Return whether the run that has left this mark is gone.

    A run that counts processes by other numbers, in a container, can't be looked up: it isn't over.
    """
    try:
        pid, since, namespace = map(int, mark.split("."))
    except ValueError:
        return False
    return namespace == _namespace() and _since(pid) != since


def marked() -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield the number and the variables of each program that bears a mark."""
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            variables = _environment(entry)
            if RUN in variables:
                yield int(entry.name), variables


def _environment(process: Path) -> Mapping[str, str]:
    try:
        found = (process / "environ").read_bytes()
    except OSError:  # gone, or somebody else's
        return {}
    pairs = (each.partition("=") for each in os.fsdecode(found).split("\0") if each)
    return {name: value for name, _, value in pairs}


def _since(pid: int) -> int:
    """Return when a process has started, in ticks since the boot; -1 if there is none."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return -1
    fields = stat.rpartition(")")[2].split()  # the name may have anything in it
    # A process that has ended stays until its parent has asked for its status.
    return -1 if fields[_STATE] in "ZX" else int(fields[_STARTED])


def _namespace() -> int:
    return (_PROC / "self/ns/pid").stat().st_ino
