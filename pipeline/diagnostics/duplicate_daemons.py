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
_INFO_OPTIONS: Final = frozenset({"print-config", "help", "h", "version", "v"})
"""Options with which that command only tells something."""

FIX: Final = (
    "remove one of them from this node: find the two DaemonSets (kubectl get ds -A), and delete "
    "one or keep their nodes apart by a label"
)

_PROCESSES_FIX: Final = (
    "look again in a minute where podgpu is being updated: the old pod goes when the new one is "
    f"ready; if both stay, {FIX}"
)
"""Processes don't tell whether one DaemonSet has made both."""


async def examine(ctx: DoctorContext) -> list[Finding]:
    """Check `twins` by the processes."""
    check = CHECKS["twins"]
    ours, others = await in_thread(partial(daemon_pids, ctx.roots.proc))
    place = f"{ctx.roots.proc}/*/cmdline"
    if len(ours) > 1:
        numbers = ", ".join(map(str, ours))
        return [
            check.warning(place, f"{len(ours)} podgpu run: processes {numbers}", _PROCESSES_FIX)
        ]
    if others and not ctx.has("dcgm"):
        saw = f"dcgm-exporter runs: process {others[0]}"
        return [check.warning(place, saw, FIX)]
    return [check.ok(place, "one podgpu runs" if ours else "no podgpu runs, as far as can be seen")]


def daemon_pids(proc: Path) -> tuple[list[int], list[int]]:
    """Return the process numbers of podgpu and of dcgm-exporter. Blocking.

    Others' processes are seen in the host's pid namespace alone.
    """
    ours, others = [], []
    for folder in proc.glob("[0-9]*"):
        try:
            words = command_line(folder)
        except OSError:  # it has ended
            continue
        if _is_podgpu(words):
            ours.append(int(folder.name))
        elif words and PurePath(words[0]).name == _EXPORTER:
            others.append(int(folder.name))
    return sorted(ours), sorted(others)


def command_line(folder: Path) -> list[str]:
    """Return the command line of a process.

    Args:
        folder: its own, `/proc/PID`.

    Raises:
        OSError: it has ended, or may not be looked at.
    """
    return (folder / "cmdline").read_bytes().decode("utf-8", "surrogateescape").split("\0")[:-1]


def _is_podgpu(arguments: Sequence[str]) -> bool:
    """Whether these are a daemon's: `podgpu run`, by way of an interpreter or not."""
    for at, word in enumerate(arguments[:-1]):
        is_it = PurePath(word).name == "podgpu" or (
            word == "pipeline" and arguments[at - 1] == "-m"
        )
        if is_it and arguments[at + 1] in _COMMANDS:
            if not _INFO_OPTIONS.isdisjoint(_option(each) for each in arguments[at + 2 :]):
                return False
            # `kubectl exec pod -- podgpu run` has it further back.
            return at < 1 or PurePath(arguments[0]).name.startswith("python")
    return False


def _option(argument: str) -> str:
    """Return the name of an option, which has one dash or two; empty for another word."""
    return argument.lstrip("-").partition("=")[0] if argument.startswith("-") else ""
