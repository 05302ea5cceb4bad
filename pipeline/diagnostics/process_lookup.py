"""Whose what is open is: a podgpu's of this container, or somebody else's."""

import os
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Final

from pipeline.diagnostics.duplicate_daemons import command_line, daemon_pids
from pipeline.files.lock_file import locked_by

NAMES_OF_STDIN: Final = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})
"""What stands for standard input in the place of a file."""

_OPTION: Final = "--config"
_LISTENS: Final = "0A"
"""TCP_LISTEN, as the kernel's tables have it."""


class FileOwner(Enum):
    """Who has something open."""

    OURS = "a podgpu of this container"
    OTHER = "no podgpu of this container"
    UNKNOWN = "a podgpu that can't be looked into may have it"


def owner_of(proc: Path, is_it: Callable[[Path], bool]) -> FileOwner:
    """Return who has something open. Blocking.

    Args:
        proc: procfs; processes of other containers are seen in the host's pid namespace alone.
        is_it: tells it by its link in `/proc/PID/fd`; may raise `OSError`.
    """
    ours, _ = daemon_pids(proc)
    unknown = False
    for number in ours:
        folder = proc / str(number)
        try:
            if not _same_root(folder, proc / "self"):
                continue
            if any(_matches(is_it, each) for each in (folder / "fd").iterdir()):
                return FileOwner.OURS
        except OSError:
            unknown = True
    return FileOwner.UNKNOWN if unknown else FileOwner.OTHER


def _same_root(one: Path, other: Path) -> bool:
    """Whether two processes see the same root folder, as those of one container do."""
    return os.path.samestat((one / "root").stat(), (other / "root").stat())


def _matches(is_it: Callable[[Path], bool], link: Path) -> bool:
    try:
        return is_it(link)
    except OSError:  # closed meanwhile
        return False


def find_port_owner(port: int, proc: Path) -> FileOwner:
    """Return who listens on a TCP port, in this network namespace. Blocking."""
    inodes = _listening(port, proc)
    if not inodes:
        return FileOwner.UNKNOWN
    names = {f"socket:[{inode}]" for inode in inodes}
    return owner_of(proc, lambda link: str(link.readlink()) in names)


def _listening(port: int, proc: Path) -> set[str]:
    """Return the inodes of listening sockets; see proc_net_tcp(5): address 2nd, inode 10th word."""
    found, suffix = set(), f":{port:04X}"
    for name in ("tcp", "tcp6"):
        try:
            rows = (proc / "net" / name).read_text(encoding="ascii", errors="replace").splitlines()
        except OSError:
            continue
        words = [row.split() for row in rows[1:]]
        found |= {
            each[9]
            for each in words
            if len(each) > 9 and each[1].endswith(suffix) and each[3] == _LISTENS
        }
    return found


def command_options(command: str, proc: Path) -> tuple[int, list[str]] | None:
    """Return what a podgpu of this container was started with behind a command. Blocking.

    Args:
        command: the word, such as `dcgm-exporter`.
        proc: procfs.

    Returns:
        Number of the process and the words behind the command; None if there is no such process.
    """
    ours, _ = daemon_pids(proc)
    for number in ours:
        folder = proc / str(number)
        try:
            words = command_line(folder)
            if command in words and _same_root(folder, proc / "self"):
                return number, words[words.index(command) + 1 :]
        except OSError:
            continue
    return None


def run_config_file(proc: Path) -> tuple[int, Path] | None:
    """Return which file a `podgpu run` of this container was given. Blocking.

    Args:
        proc: procfs.

    Returns:
        Number of the process and the file; None if there is no such process, it was given none, or
        standard input.
    """
    running = command_options("run", proc)
    if running is None:
        return None
    number, words = running
    name = _config_argument(words)
    if not name or str(Path(name)) in NAMES_OF_STDIN:
        return None
    try:
        # By its own folder, which need not be ours.
        return number, (proc / str(number) / "cwd").readlink() / name
    except OSError:
        return (number, Path(name)) if name.startswith("/") else None


def _config_argument(arguments: Sequence[str]) -> str:
    """Return the file after `-c` or `--config`, as `podgpu run` reads them; the last one counts."""
    named = ""
    for at, word in enumerate(arguments):
        if word in ("-c", _OPTION):
            named = arguments[at + 1] if at + 1 < len(arguments) else ""
        elif word.startswith(f"{_OPTION}="):
            named = word.removeprefix(f"{_OPTION}=")
        elif word.startswith("-c"):
            named = word.removeprefix("-c").removeprefix("=")
    return named


def file_owner(file: Path, proc: Path) -> FileOwner:
    """Return who has a file open. Blocking.

    Raises:
        OSError: it isn't there any more.
    """
    there = file.stat()
    return owner_of(proc, lambda link: os.path.samestat(link.stat(), there))


def lock_owner(lock: Path, proc: Path) -> str:
    """Return who holds a lock if it is no podgpu of this container; empty if nobody else does.

    Blocking.
    """
    try:
        owner = locked_by(lock)
        if owner is None or file_owner(lock, proc) is not FileOwner.OTHER:
            return ""
    except OSError:
        return ""
    return f"another podgpu, {owner}" if owner else "another process"
