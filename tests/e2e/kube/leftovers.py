"""Remove everything that a killed cluster left on the machine.

Processes are found by the mark of an ended run, and by containerd's records of containers, never by
a program name that another process may have. The caller must hold the lock of the cluster.
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
"""The kubelet creates links to container logs there."""

_NETWORKS = Path("/var/lib/cni")
"""CNI stores allocated addresses there."""

_USUAL_POD_RESOURCES = folders.DEVICE_PLUGINS.with_name("pod-resources")
"""The cluster's kubelet has another folder; this one is created, empty, for pods that mount it."""

_SHIMS = Path("/run/containerd")
"""Shims create their sockets there independently of containerd's folder."""


def refuse_where_another_kubelet_is() -> None:
    """Raise RuntimeError if the machine is a Kubernetes node, to protect its device plugins."""
    root = folders.DEVICE_PLUGINS.parent
    found = set(root.iterdir()) if root.is_dir() else set()
    if _USUAL_POD_RESOURCES in found and not any(_USUAL_POD_RESOURCES.iterdir()):
        found.remove(_USUAL_POD_RESOURCES)
    if found - {folders.DEVICE_PLUGINS}:
        raise RuntimeError(f"{root} belongs to a kubelet: use a machine without kubelet")
    if _served(folders.DEVICE_PLUGINS / "kubelet.sock"):
        raise RuntimeError("a kubelet runs here: use a machine without kubelet")


def clear() -> None:
    """Remove the leftovers of ended runs and this run's cluster. Other programs keep running."""
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
        with suppress(OSError):  # absent, or contains other files
            folder.rmdir()


def _networked() -> set[str]:
    """Return the ids of the pods in the network of the tests."""
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
    """Return the program of a process; None if it has ended or is a kernel thread."""
    try:
        return Path(f"/proc/{pid}/exe").readlink()
    except OSError:
        return None


def ended_with_their_run() -> list[int]:
    """Return the processes of ended runs, of any checkout.

    Include the remaining processes of this run's cluster, because shims outlive containerd.
    """
    own = marks.own()
    return [
        pid
        for pid, variables in marks.marked()
        if marks.over(run := variables[marks.RUN]) or (run == own and marks.NODE in variables)
    ]


def _is_shim(pid: int) -> bool:
    # The path of a program that was rebuilt meanwhile ends with " (deleted)".
    program = _runs(pid)
    return program is not None and program.name.startswith("containerd-shim")


def _containers() -> list[int]:
    """Return the first process of each container, from containerd's records."""
    found = []
    for record in folders.RUN.glob("containerd/io.containerd.runtime.v2.task/k8s.io/*/init.pid"):
        with suppress(OSError, ValueError):
            pid = int(record.read_text())
            # Another process may have the pid now.
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
    """Return the mounts in the cluster's folder, the innermost first."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    targets = [line.split()[1].encode().decode("unicode_escape") for line in lines]
    return [each for each in reversed(targets) if Path(each).is_relative_to(folders.STATE)]


def _unmount() -> None:
    for target in _mounts():
        subprocess.run(["umount", "--lazy", target], check=True, timeout=20)
    # The next deletion must not follow a mount.
    assert not _mounts(), _mounts()


def _remove_cgroups() -> None:
    # Version 1 has a tree for each controller, version 2 only one.
    for root in (_CGROUPS, *_CGROUPS.glob("*/")):
        top = root / "kubepods"
        if top.is_dir():
            # Killed processes may not have ended yet.
            wait_until(lambda top=top: _removed(top), f"{top} is gone")  # type: ignore[misc]


def _removed(top: Path) -> bool:
    for folder, _, _ in os.walk(top, topdown=False):
        with suppress(OSError):
            Path(folder).rmdir()
    return not top.exists()
