"""Prepare cgroups of version 2 for the kubelet."""

from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


def make_room() -> None:
    """Move the processes of this cgroup to a child group if the kubelet could not use it otherwise.

    In version 2 a group that delegates controllers must not contain processes. In a container, all
    processes are in the apparent root group. The real root group and version 1 do not have this
    rule.
    """
    # The real root group has no type.
    if not (_ROOT / "cgroup.type").exists():
        return
    below = _ROOT / "init"
    below.mkdir(exist_ok=True)
    for pid in (_ROOT / "cgroup.procs").read_text().split():
        try:
            (below / "cgroup.procs").write_text(pid)
        except ProcessLookupError:
            continue
    for controller in (_ROOT / "cgroup.controllers").read_text().split():
        (_ROOT / "cgroup.subtree_control").write_text(f"+{controller}")
