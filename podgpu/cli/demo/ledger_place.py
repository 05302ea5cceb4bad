"""The ledger file of the demo: where it is, and the child process that writes it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

DEFAULT_PORT: Final = "9400"
"""The port of a demo that is started without an address."""

_NOTICE_SECONDS: Final = 5.0
"""Seconds between two messages of progress. Writing takes about a second, and longer on a machine
that is busy."""

_NOTICES_WITHOUT_PROGRESS: Final = 12
"""Number of these intervals without CPU time of the child after which its disk is to blame."""

_SUFFIXES: Final = ("", "-wal", "-shm")


class DemoLedgerError(Exception):
    """The demo has no ledger. The text says why, and what to do."""


def _folders(env: Mapping[str, str]) -> Iterator[Path]:
    """Yield the folders for the ledger, the preferred one first.

    The second one is for containers, in which the user often has no folder.
    """
    state, home = env.get("XDG_STATE_HOME", ""), env.get("HOME", "")
    if state.startswith("/"):  # the specification says to ignore relative paths
        yield Path(state) / "podgpu"
    elif home.startswith("/"):
        yield Path(home) / ".local" / "state" / "podgpu"
    yield Path(env.get("TMPDIR") or "/tmp") / f"podgpu-{os.geteuid()}"  # noqa: S108


def _is_private(folder: Path) -> bool:
    """Whether a folder belongs to this user, and no other user can change its files."""
    status = folder.stat(follow_symlinks=False)
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _exists_privately(folder: Path) -> bool:
    try:
        return _is_private(folder)
    except OSError:
        return False


def place(port: str, env: Mapping[str, str]) -> Path:
    """Return the path of a demo's ledger, and create its folder.

    Each port has its own file, because two demos can run at the same time.

    Args:
        port: the port on which the demo listens.
        env: the environment variables.

    Raises:
        DemoLedgerError: no folder can be used.
    """
    name = _name(port)
    problems = []
    for folder in _folders(env):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_private(folder) and os.access(folder, os.W_OK | os.X_OK):
                return folder / name
            problems.append(f"{folder}: other users can write to it, or this user cannot")
        except OSError as error:
            problems.append(f"{folder}: {(error.strerror or str(error)).lower()}")
    raise DemoLedgerError(f"{'; '.join(problems)}; set XDG_STATE_HOME to a folder of your own")


def _name(port: str) -> str:
    return "demo.db" if port == DEFAULT_PORT else f"demo-{port}.db"


def existing(port: str, env: Mapping[str, str]) -> Path | None:
    """Return the ledger of the demo on a port; None if there is none."""
    found = (folder / _name(port) for folder in _folders(env) if _exists_privately(folder))
    return next((path for path in found if path.is_file()), None)


def latest(env: Mapping[str, str]) -> Path | None:
    """Return the ledger to which a demo wrote last; None if there is none."""
    found: list[tuple[float, Path]] = []
    for folder in _folders(env):
        if _exists_privately(folder):
            files = [one for one in folder.glob("demo*.db") if one.is_file()]
            found += [(max(map(_changed, files_of(one))), one) for one in files]
    return max(found, default=(0, None))[1]


def _changed(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0


def new_file_of(path: Path) -> Path:
    """Return the path at which a ledger is written, until it is complete."""
    return path.with_name(f"{path.name}.new")


def remove(path: Path) -> None:
    """Remove a ledger. The main file first: SQLite would add an old log to a new file.

    Raises:
        OSError: a file cannot be removed.
    """
    for each in files_of(path):
        each.unlink(missing_ok=True)


def files_of(path: Path) -> list[Path]:
    """Return the paths of a ledger and of SQLite's files for it."""
    return [path.with_name(path.name + end) for end in _SUFFIXES]


def write_in_child(path: Path, progress: Callable[[str], None] = lambda _: None) -> None:
    """Write the sample data in a child process, whose memory is free after its end.

    The child may take as long as it needs while it runs. If the caller is interrupted, the child
    ends, and its incomplete file is removed.

    Args:
        path: the ledger.
        progress: is called with a message every few seconds.

    Raises:
        DemoLedgerError: the data cannot be written.
    """
    # With our search path, and without the present folder, which may belong to others.
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-P", "-m", "podgpu.cli.demo", str(path)]
    try:
        child = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )  # fmt: skip
    except OSError as error:
        raise DemoLedgerError(f"cannot start {sys.executable}: {error.strerror}") from error
    try:
        errors = _wait(child, path, progress)
    except BaseException:
        child.kill()
        # A process that waits for a broken disk does not end.
        with suppress(subprocess.TimeoutExpired):
            child.wait(1)
        if child.stderr is not None:
            child.stderr.close()
        with suppress(OSError):
            remove(new_file_of(path))
        raise
    if child.returncode:
        lines = errors.decode("utf-8", "replace").strip().splitlines()
        status = f"{path}: the process that writes it ended with status {child.returncode}"
        raise DemoLedgerError(lines[-1] if lines else status)


def _wait(child: "subprocess.Popen[bytes]", path: Path, progress: Callable[[str], None]) -> bytes:
    """Wait until the child ends; return what it wrote to stderr.

    Raises:
        DemoLedgerError: the child has used no CPU time for too long.
    """
    number = idle = 0
    used = ""
    while True:
        try:
            return child.communicate(timeout=_NOTICE_SECONDS)[1]
        except subprocess.TimeoutExpired:
            number += 1
        before, used = used, _cpu_time(child.pid)
        idle = idle + 1 if used and used == before else 0
        seconds = f"{number * _NOTICE_SECONDS:.0f} s"
        if idle >= _NOTICES_WITHOUT_PROGRESS:
            text = f"{path}: not written after {seconds}, and its writer makes no progress: "
            raise DemoLedgerError(f"{text}check its disk")
        progress(f"still writing the sample usage after {seconds}: this machine is busy or slow")


def _cpu_time(pid: int) -> str:
    """Return the CPU time of a process, in a form to compare; empty if unknown.

    See proc_pid_stat(5): utime and stime are the fields 14 and 15, and the second field ends with
    the last parenthesis.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    return " ".join(text.rpartition(")")[2].split()[11:13])
