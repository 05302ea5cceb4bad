"""What a node leaves behind when it is killed, and the way to be rid of it.

Processes are found by the mark of a run that is over, and by the container they are: never by a
program or a name that might be another's. Only who holds the lock of the node may clear.
"""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from tests.e2e import marks
from tests.e2e.kube import folders, service, sysctls
from tests.e2e.kube.containerd import NETWORK
from tests.e2e.processes import wait_until

_CGROUPS = Path("/sys/fs/cgroup")
_CONTAINER_LOGS = Path("/var/log/containers")
"""The kubelet links each container's log there."""

_NETWORKS = Path("/var/lib/cni")
"""What pods were given is remembered there, until it is taken back."""

_USUAL_POD_RESOURCES = folders.DEVICE_PLUGINS.with_name("pod-resources")
"""The node's kubelet has its own elsewhere: a pod that wants this folder of the host gets it made,
and finds nothing in it."""

_SHIMS = Path("/run/containerd")
"""Shims have their sockets there whatever containerd's own folder is."""


def refuse_where_another_kubelet_is() -> None:
    """Raise RuntimeError on a machine that is a node already: its device plugins are not ours."""
    root = folders.DEVICE_PLUGINS.parent
    found = set(root.iterdir()) if root.is_dir() else set()
    if _USUAL_POD_RESOURCES in found and not any(_USUAL_POD_RESOURCES.iterdir()):
        found.remove(_USUAL_POD_RESOURCES)
    if found - {folders.DEVICE_PLUGINS}:
        raise RuntimeError(f"{root} is a kubelet's: these tests need a machine that is no node")
    if _served(folders.DEVICE_PLUGINS / "kubelet.sock"):
        raise RuntimeError("a kubelet runs here: these tests need a machine that is no node")


def clear() -> None:
    """Remove all that runs which are over left, and this one's node. Others' programs go on."""
    end([pid for pid in ended_with_their_run() if not _is_shim(pid)])
    refuse_where_another_kubelet_is()
    end(_containers())
    end(ended_with_their_run())
    _unmount()
    _remove_cgroups()
    sysctls.restore()
    service.remove_all()
    shutil.rmtree(folders.STATE, ignore_errors=True)
    for path in folders.DEVICE_PLUGINS.glob("*"):
        path.unlink()
    for path in _SHIMS.glob("s/*"):
        if not _served(path):
            path.unlink()
    for sandbox in _networked():
        for path in _NETWORKS.glob(f"results/*-{sandbox}-*"):
            path.unlink()
    for link in _CONTAINER_LOGS.glob("*"):
        if link.is_symlink() and link.readlink().is_relative_to(folders.STATE):
            link.unlink()
    networks = (_NETWORKS / "results", _NETWORKS)
    mostly_empty = (
        folders.DEVICE_PLUGINS,
        _USUAL_POD_RESOURCES,
        *_SHIMS.glob("*"),
        _CONTAINER_LOGS,
        *networks,
    )
    for folder in (*mostly_empty, folders.DEVICE_PLUGINS.parent, _SHIMS):
        with suppress(OSError):  # absent, or holds what is not ours
            folder.rmdir()


def _networked() -> set[str]:
    """Return the ids of the pods that have the network of the tests."""
    found = _NETWORKS.glob(f"results/{NETWORK}-*")
    return {path.name.removeprefix(f"{NETWORK}-").rpartition("-")[0] for path in found}


def _served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as trial:
        try:
            trial.connect(str(path))
        except OSError:
            return False
    return True


def _runs(pid: int) -> Path | None:
    """Return a process's program; None for one that is gone or the kernel's."""
    try:
        return Path(f"/proc/{pid}/exe").readlink()
    except OSError:
        return None


def ended_with_their_run() -> list[int]:
    """Return what nobody needs any more: all of runs that are over, of whichever checkout.

    And what is left of this run's own node, which is to end now: its shims outlive containerd.
    """
    own = marks.own()
    return [
        pid
        for pid, variables in marks.marked()
        if marks.over(run := variables[marks.RUN]) or (run == own and marks.NODE in variables)
    ]


def _is_shim(pid: int) -> bool:
    # A program that has been built anew since is "... (deleted)".
    program = _runs(pid)
    return program is not None and program.name.startswith("containerd-shim")


def _containers() -> list[int]:
    """Return the first process of each container, as containerd's own records name it."""
    found = []
    for record in folders.RUN.glob("containerd/io.containerd.runtime.v2.task/k8s.io/*/init.pid"):
        with suppress(OSError, ValueError):
            pid = int(record.read_text())
            # The number may be another's by now.
            if record.parent.name in Path(f"/proc/{pid}/cgroup").read_text():
                found.append(pid)
    return found


def end(pids: Collection[int]) -> None:
    """Kill processes and wait until they are gone."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(_runs(pid) for pid in pids), f"{pids} are gone")


def _mounts() -> list[str]:
    """Return what is mounted in the node's folder, the innermost first."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    targets = [line.split()[1].encode().decode("unicode_escape") for line in lines]
    return [each for each in reversed(targets) if Path(each).is_relative_to(folders.STATE)]


def _unmount() -> None:
    for target in _mounts():
        subprocess.run(["umount", "--lazy", target], check=True, timeout=20)
    # What is deleted next must not reach beyond.
    assert not _mounts(), _mounts()


def _remove_cgroups() -> None:
    # Version 1 has a tree for each controller, version 2 one for all.
    for root in (_CGROUPS, *_CGROUPS.glob("*/")):
        top = root / "kubepods"
        if top.is_dir():
            # Processes that were killed may still be on their way out.
            wait_until(lambda top=top: _removed(top), f"{top} is gone")  # type: ignore[misc]


def _removed(top: Path) -> bool:
    for folder, _, _ in os.walk(top, topdown=False):
        with suppress(OSError):
            Path(folder).rmdir()
    return not top.exists()
