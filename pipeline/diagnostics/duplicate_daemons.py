"""Whether more than one podgpu runs here, as far as processes can be seen."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import Final

from pipeline.component.findings import Finding
from pipeline.diagnostics.check_table import CHECKS
from pipeline.diagnostics.context import DoctorContext, in_thread

_COMMANDS: Final = frozenset({"run", "demo", "dcgm-exporter"})
"""Those that are the daemon."""
_EXPORTER: Final = "dcgm-exporter"
_TELLS: Final = frozenset({"print-config", "help", "h", "version", "v"})
"""Options with which that command only tells something."""

MEND: Final = (
    "remove one of them from this node: find the two DaemonSets (kubectl get ds -A), and delete "
    "one or keep their nodes apart by a label"
)

_MEND_PROCESSES: Final = (
    "look again in a minute where podgpu is being updated: the old pod goes when the new one is "
    f"ready; if both stay, {MEND}"
)
"""Processes don't tell whether one DaemonSet has made both."""


async def examine(ctx: DoctorContext) -> list[Finding]:
    """Check `twins` by the processes."""
    check = CHECKS["twins"]
    ours, others = await in_thread(partial(daemons, ctx.roots.proc))
    place = f"{ctx.roots.proc}/*/cmdline"
    if len(ours) > 1:
        numbers = ", ".join(map(str, ours))
        return [
            check.warning(place, f"{len(ours)} podgpu run: processes {numbers}", _MEND_PROCESSES)
        ]
    if others and not ctx.has("dcgm"):
        saw = f"dcgm-exporter runs: process {others[0]}"
        return [check.warning(place, saw, MEND)]
    return [check.ok(place, "one podgpu runs" if ours else "no podgpu runs, as far as can be seen")]


def daemons(proc: Path) -> tuple[list[int], list[int]]:
    """Return the process numbers of podgpu and of dcgm-exporter. Blocking.

    Others' processes are seen in the host's pid namespace alone.
    """
    ours, others = [], []
    for folder in proc.glob("[0-9]*"):
        try:
            words = words_of(folder)
        except OSError:  # it has ended
            continue
        if _is_podgpu(words):
            ours.append(int(folder.name))
        elif words and PurePath(words[0]).name == _EXPORTER:
            others.append(int(folder.name))
    return sorted(ours), sorted(others)


def words_of(folder: Path) -> list[str]:
    """Return the command line of a process.

    Args:
        folder: its own, `/proc/PID`.

    Raises:
        OSError: it has ended, or may not be looked at.
    """
    return (folder / "cmdline").read_bytes().decode("utf-8", "surrogateescape").split("\0")[:-1]


def _is_podgpu(words: Sequence[str]) -> bool:
    """Whether these are a daemon's: `podgpu run`, by way of an interpreter or not."""
    for at, word in enumerate(words[:-1]):
        is_it = PurePath(word).name == "podgpu" or (word == "pipeline" and words[at - 1] == "-m")
        if is_it and words[at + 1] in _COMMANDS:
            if not _TELLS.isdisjoint(_option(each) for each in words[at + 2 :]):
                return False
            # `kubectl exec pod -- podgpu run` has it further back.
            return at < 1 or PurePath(words[0]).name.startswith("python")
    return False


def _option(word: str) -> str:
    """Return the name of an option, which has one dash or two; empty for another word."""
    return word.lstrip("-").partition("=")[0] if word.startswith("-") else ""
