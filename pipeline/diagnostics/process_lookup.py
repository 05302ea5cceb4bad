"""Find which podgpu of this container holds a file or a port, and how a podgpu was started."""

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from pipeline.diagnostics.duplicate_daemons import COMMANDS, command_line, daemon_pids
from pipeline.files.lock_file import locked_by

NAMES_OF_STDIN: Final = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})
"""File names that mean standard input."""

_LISTENS: Final = "0A"
"""The TCP state "listening", as written in /proc/net/tcp."""


class FileOwner(Enum):
    """The kind of process that has a file or socket open."""

    OURS = "a podgpu of this container"
    OTHER = "no podgpu of this container"
    UNKNOWN = "a podgpu process that cannot be inspected may have it open"


def owner_of(proc: Path, is_it: Callable[[Path], bool]) -> FileOwner:
    """Return which kind of process has a file or socket open. Blocking.

    Args:
        proc: folder of procfs. It shows processes of other containers only in the host's PID
            namespace.
        is_it: returns whether a link in `/proc/PID/fd` is the file or socket; may raise `OSError`.
    """
    unknown = False
    for number in daemon_pids(proc)[0]:
        folder = proc / str(number)
        try:
            if _same_root(folder, proc / "self") and any(
                _matches(is_it, each) for each in (folder / "fd").iterdir()
            ):
                return FileOwner.OURS
        except OSError:
            unknown = True
    return FileOwner.UNKNOWN if unknown else FileOwner.OTHER


def _same_root(one: Path, other: Path) -> bool:
    """Return whether two processes have the same root folder, as those of one container do."""
    return os.path.samestat((one / "root").stat(), (other / "root").stat())


def _matches(is_it: Callable[[Path], bool], link: Path) -> bool:
    try:
        return is_it(link)
    except OSError:  # closed in the meantime
        return False


def find_port_owner(port: int, proc: Path) -> FileOwner:
    """Return which kind of process listens on a TCP port in this network namespace. Blocking."""
    inodes = _listening(port, proc)
    if not inodes:
        return FileOwner.UNKNOWN
    names = {f"socket:[{inode}]" for inode in inodes}
    return owner_of(proc, lambda link: str(link.readlink()) in names)


def _listening(port: int, proc: Path) -> set[str]:
    """Return the inodes of the sockets that listen on a TCP port.

    See proc_net_tcp(5): the address is the second field, the inode the tenth.
    """
    found, suffix = set(), f":{port:04X}"
    for name in ("tcp", "tcp6"):
        try:
            rows = (proc / "net" / name).read_text(encoding="ascii", errors="replace").splitlines()
        except OSError:
            continue
        fields = [row.split() for row in rows[1:]]
        found |= {
            each[9]
            for each in fields
            if len(each) > 9 and each[1].endswith(suffix) and each[3] == _LISTENS
        }
    return found


@dataclass(frozen=True, slots=True)
class Daemon:
    """A running podgpu.

    Attributes:
        pid: id of the process.
        command: `run`, `demo` or `dcgm-exporter`.
        options: the arguments after the command.
    """

    pid: int
    command: str
    options: tuple[str, ...]

    def __str__(self) -> str:
        """Return a text for people, such as `process 7 (podgpu run -c a.yaml)`."""
        return f"process {self.pid} ({' '.join(['podgpu', self.command, *self.options])})"


def running_daemons(proc: Path) -> list[Daemon]:
    """Return the podgpu daemons of this container that this user may inspect. Blocking.

    Args:
        proc: folder of procfs.
    """
    found = []
    for number in daemon_pids(proc)[0]:
        folder = proc / str(number)
        try:
            words = command_line(folder)
            is_here = _same_root(folder, proc / "self")
        except OSError:
            continue
        at = next((at for at, word in enumerate(words) if word in COMMANDS), None)
        if at is not None and is_here:
            found.append(Daemon(number, words[at], tuple(words[at + 1 :])))
    return found


def environment(pid: int, proc: Path) -> dict[str, str] | None:
    """Return the environment variables with which a process was started. Blocking.

    Returns:
        Values by name; None if this user may not read them, or the process has ended.
    """
    try:
        text = (proc / str(pid) / "environ").read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return None
    pairs = (each.partition("=") for each in text.split("\0"))
    return {name: value for name, equals, value in pairs if equals}


def run_config_file(daemon: Daemon, proc: Path) -> Path | None:
    """Return the configuration file that the options of a `podgpu run` name. Blocking.

    Args:
        daemon: the process.
        proc: folder of procfs.

    Returns:
        Path of the file; None if the process has another command, if it has no file, if it reads
        standard input, or if the path cannot be found out.
    """
    name = _config_argument(daemon.options) if daemon.command == "run" else ""
    if not name or str(Path(name)) in NAMES_OF_STDIN:
        return None
    try:
        # Relative to that process' working directory, which may differ from ours.
        return (proc / str(daemon.pid) / "cwd").readlink() / name
    except OSError:
        return Path(name) if name.startswith("/") else None


def names_config_file(daemon: Daemon) -> bool:
    """Whether the options of a `podgpu run` name a configuration file, or standard input."""
    return bool(_config_argument(daemon.options))


def _config_argument(arguments: Sequence[str]) -> str:
    """Return the last file after `-c` or `--config`, as `podgpu run` does; empty if none."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("-c", "--config", default="")
    try:
        return str(parser.parse_known_args(arguments)[0].config)
    except argparse.ArgumentError:
        return ""


def lock_owner(lock: Path, proc: Path) -> str:
    """Return a text for people about which process holds a lock. Blocking.

    The text is empty if a podgpu of this container holds the lock, if no process holds it, or if
    the holder is unknown.
    """
    try:
        owner = locked_by(lock)
        if owner is None or owner_of(proc, lock.samefile) is not FileOwner.OTHER:
            return ""
    except OSError:
        return ""
    return f"another podgpu, {owner}" if owner else "another process"
