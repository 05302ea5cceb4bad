"""Check `twins`: whether more than one GPU exporter runs here, according to visible processes."""

from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Final

from pipeline.component.findings import WARNS, Check, Finding
from pipeline.diagnostics.context import DoctorContext
from pipeline.diagnostics.kubelet_roots import IN_CLUSTER, ROOTS

CHECK: Final = Check("twins", WARNS)

COMMANDS: Final = frozenset({"run", "demo", "dcgm-exporter"})
"""Commands that run as a daemon."""
_EXPORTER: Final = "dcgm-exporter"
_INFO_OPTIONS: Final = frozenset({"print-config", "help", "h", "version", "v"})
"""Options with which a command only prints something and exits."""

FIX: Final = (
    "remove one of them from this node: find the two DaemonSets (kubectl get ds -A), and delete "
    "one, or use a node label to run them on different nodes"
)

_OUTSIDE_FIX: Final = (
    "end those that are not needed; ps -fp {} shows them. Nothing, if they read different GPUs or "
    "are demos"
)
"""The fix for processes on a machine without Kubernetes."""

_PROCESSES_FIX: Final = (
    "if podgpu is being updated, run the check again in a minute: the old pod ends when the new "
    f"one is ready; if both stay, {FIX}"
)
"""The fix for several podgpu processes, which may belong to one DaemonSet."""


def examine(ctx: DoctorContext) -> Finding:
    """Run the check `twins` on the visible processes."""
    ours, others = daemon_pids(ctx.roots.proc)
    place = f"{ctx.roots.proc}/*/cmdline"
    if len(ours) > 1:
        numbers = ", ".join(map(str, ours))
        fix = (
            _PROCESSES_FIX
            if _has_kubernetes(ctx)
            else _OUTSIDE_FIX.format(numbers.replace(" ", ""))
        )
        return CHECK.warning(place, f"{len(ours)} podgpu processes run: {numbers}", fix)
    if others and not ctx.has("dcgm"):
        observed = f"dcgm-exporter runs: process {others[0]}"
        fix = FIX if _has_kubernetes(ctx) else _OUTSIDE_FIX.format(others[0])
        return CHECK.warning(place, observed, fix)
    return CHECK.ok(place, "one podgpu runs" if ours else "no podgpu process is visible")


def _has_kubernetes(ctx: DoctorContext) -> bool:
    """Whether podgpu runs in a cluster's pod, or on a machine with a kubelet."""
    return IN_CLUSTER in ctx.environ or any((ctx.roots.host / root).exists() for root, _ in ROOTS)


def daemon_pids(proc: Path) -> tuple[list[int], list[int]]:
    """Return the PIDs of podgpu daemons and of dcgm-exporters. Blocking.

    Processes of other containers are visible in the host's PID namespace only.
    """
    ours, others = [], []
    for folder in proc.glob("[0-9]*"):
        try:
            arguments = command_line(folder)
        except OSError:  # it has ended
            continue
        if _is_podgpu(arguments):
            ours.append(int(folder.name))
        elif arguments and PurePath(arguments[0]).name == _EXPORTER:
            others.append(int(folder.name))
    return sorted(ours), sorted(others)


def command_line(folder: Path) -> list[str]:
    """Return the command line of a process.

    Args:
        folder: `/proc/PID` of the process.

    Raises:
        OSError: the process has ended or may not be read.
    """
    return (folder / "cmdline").read_bytes().decode("utf-8", "surrogateescape").split("\0")[:-1]


def _is_podgpu(arguments: Sequence[str]) -> bool:
    """Return whether a command line is that of a podgpu daemon, with or without an interpreter."""
    for at, word in enumerate(arguments[:-1]):
        is_it = PurePath(word).name == "podgpu" or (
            word == "pipeline" and arguments[at - 1] == "-m"
        )
        if is_it and arguments[at + 1] in COMMANDS:
            if not _INFO_OPTIONS.isdisjoint(_option(each) for each in arguments[at + 2 :]):
                return False
            # `kubectl exec pod -- podgpu run` has these words too, further back.
            return at < 1 or PurePath(arguments[0]).name.startswith("python")
    return False


def _option(argument: str) -> str:
    """Return the name of an option with one dash or two; empty if it is not an option."""
    return argument.lstrip("-").partition("=")[0] if argument.startswith("-") else ""
