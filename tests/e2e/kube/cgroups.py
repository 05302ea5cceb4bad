"""Room for the pods' cgroups on a machine with version 2."""

from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


def make_room() -> None:
    """Move this cgroup's processes into one below it where they stand in the kubelet's way.

    In version 2 a group that hands out controllers may have no processes of its own, and whoever
    runs in a container has all of his in what looks to him like the root. The true root, and all
    of version 1, are free of that rule.
    """
    # Only a group that isn't the root has a type.
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
