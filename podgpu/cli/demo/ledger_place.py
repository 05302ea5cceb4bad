"""The ledger file of the demo: where it is, and the child process that writes it."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

DEFAULT_PORT: Final = "9400"
"""The port of a demo that is started without an address."""

_SECONDS: Final = 20
"""Time limit for writing the sample data, which takes about one second."""

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


def files_of(path: Path) -> list[Path]:
    """Return the paths of a ledger and of SQLite's files for it."""
    return [path.with_name(path.name + end) for end in _SUFFIXES]


def write_in_child(path: Path) -> None:
    """Write the sample data in a child process, whose memory is free after its end.

    Raises:
        DemoLedgerError: the data cannot be written.
    """
    # With our search path, and without the present folder, which may belong to others.
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-P", "-m", "podgpu.cli.demo", str(path)]
    try:
        done = subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        text = f"{path}: was not written within {_SECONDS} s; check its disk"
        raise DemoLedgerError(text) from error
    except OSError as error:
        raise DemoLedgerError(f"cannot start {sys.executable}: {error.strerror}") from error
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        status = f"{path}: the process that writes it ended with status {done.returncode}"
        raise DemoLedgerError(lines[-1] if lines else status)
