"""Finds the jobs of Slurm on this node by their cgroups.

slurmstepd creates a cgroup for each job that has a step on the node, and removes it with the last
one. Version 1: `HIERARCHY/slurm_NODE/uid_U/job_J`, where `_NODE` is missing in most builds.
Version 2: `system.slice/NODE_slurmstepd.scope/job_J`, likewise.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pipeline.host import procfs

MAX_JOBS: Final = 10_000
"""Maximum number of jobs. A node has fewer."""

_HIERARCHY: Final = "freezer"
"""The hierarchy of version 1 in which Slurm keeps track of the processes of jobs."""
_V1_NODE: Final = re.compile(r"slurm(?:_(.+))?")
_V2_NODE: Final = re.compile(r"(?:(.+)_)?slurmstepd\.scope")
_JOB: Final = re.compile(r"job_([1-9][0-9]{0,9})")


@dataclass(frozen=True, slots=True)
class JobCgroups:
    """The cgroups of jobs.

    Attributes:
        version: version of the cgroups, 1 or 2.
        found: whether Slurm has cgroups on this node.
        nodes: names in Slurm of this node, and of others of this host; those with jobs if there are
            any. Empty if the cgroups have no names.
        jobs: by the id of a job, the inode of its cgroup. A job that is requeued gets a new one.
        empty: the jobs whose cgroups contain no process. A job is empty when it starts, and forever
            if slurmstepd was killed before it removed the cgroup.
    """

    version: int
    found: bool
    nodes: tuple[str, ...] = ()
    jobs: dict[str, int] = field(default_factory=dict)
    empty: frozenset[str] = frozenset()


def folders(root: Path) -> list[Path]:
    """Return the folders in which the cgroup of a job, or a folder of this list, may appear.

    Blocking.
    """
    if _version(root) == 2:
        slice_ = root / "system.slice"
        return [root, slice_, *slice_.glob("*slurmstepd.scope")]
    hierarchy = root / _HIERARCHY
    nodes = list(hierarchy.glob("slurm*"))
    users = [user for node in nodes for user in node.glob("uid_*")]
    return [root, hierarchy, *nodes, *users]


def read(root: Path, node: str = "") -> JobCgroups:
    """Return the jobs. Blocking.

    Args:
        root: where cgroups are mounted.
        node: the node's name in Slurm; with it, cgroups of other nodes of this host are ignored.

    Raises:
        OSError: the cgroups cannot be read, or there are too many jobs.
    """
    version = _version(root)
    if version == 1:
        above, pattern, below = root / _HIERARCHY, _V1_NODE, "uid_*/job_*"
    else:
        above, pattern, below = root / "system.slice", _V2_NODE, "job_*"
    found, jobs, empty = False, dict[str, int](), set[str]()
    names, with_jobs = set[str](), set[str]()
    for folder, of_node in _nodes(above, pattern):
        if node and of_node and of_node != node:
            continue
        found, before = True, len(jobs)
        for group in folder.glob(below):
            if matched := _JOB.fullmatch(group.name):
                inode = _inode(group)
                if inode is not None:
                    jobs[matched[1]] = inode
                    if not _has_process(group):
                        empty.add(matched[1])
        names.add(of_node)
        if len(jobs) > before:
            with_jobs.add(of_node)
        if len(jobs) > MAX_JOBS:
            raise OSError(f"{folder}: has more than {MAX_JOBS} jobs")
    nodes = tuple(sorted((with_jobs or names) - {""}))
    return JobCgroups(version, found, nodes, jobs, frozenset(empty))


def _version(root: Path) -> int:
    return 2 if (root / "cgroup.controllers").exists() else 1


def _nodes(above: Path, pattern: re.Pattern[str]) -> Iterable[tuple[Path, str]]:
    if not above.is_dir():
        raise FileNotFoundError(f"{above}: no such folder")
    for folder in above.iterdir():
        if matched := pattern.fullmatch(folder.name):
            yield folder, matched[1] or ""


def _has_process(group: Path) -> bool:
    return any(procfs.read(procs) for procs in group.rglob("cgroup.procs"))


def _inode(group: Path) -> int | None:
    try:
        return group.stat().st_ino
    except OSError:  # the job has ended since the folder was listed
        return None
