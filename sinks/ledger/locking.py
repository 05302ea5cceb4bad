"""One writer for a ledger: a lock on a file beside it. Blocks."""

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import Final

from pipeline.ledger.errors import LedgerError

_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_TRIES: Final = 20
_BETWEEN: Final = 0.005
"""Seconds: who only looks whether a ledger is in use, as `podgpu doctor` does, has its lock for
some microseconds."""


class LockedError(LedgerError):
    """Somebody else writes the ledger."""


class Lock:
    """The right to write a ledger; it goes with the process, however that ends.

    Not the file's own lock: the file may be set aside, and a new one takes its place.

    Args:
        ledger: the ledger's file.
    """

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self._path = lock_of(ledger)
        self._descriptor = -1

    def take(self) -> None:
        """Take it, if it isn't held already. Tried for a tenth of a second.

        Raises:
            LockedError: somebody else has it.
            OSError: there can be no lock.
        """
        if self.held():
            return
        self.release()
        self._descriptor = os.open(self._path, _FLAGS, 0o600)
        try:
            self._wait()
        except BlockingIOError:
            number = os.pread(self._descriptor, 20, 0).decode("ascii", "replace").strip()
            owner = f"process {number}" if number.isdecimal() else "another process"
            self.release()
            raise LockedError(
                str(self._ledger),
                f"is in use by {owner}",
                "each podgpu needs a ledger of its own; one that is being replaced lets go of it",
                reason="locked",
            ) from None
        except OSError:
            self.release()
            raise
        with contextlib.suppress(OSError):  # for people only, and a full disk takes no number
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def held(self) -> bool:
        """Whether the lock file that stands there is the one that is held."""
        if self._descriptor < 0:
            return False
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._path.lstat())
        except OSError:
            return False

    def release(self) -> None:
        """Let others have it."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def _wait(self) -> None:
        for left in range(_TRIES, -1, -1):
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not left:
                    raise
                time.sleep(_BETWEEN)
            else:
                return


def lock_of(ledger: Path) -> Path:
    """Return the lock file of a ledger."""
    return ledger.with_name(f"{ledger.name}.lock")


def locked_by(ledger: Path) -> str | None:
    """Return who has the lock, in words that may be empty; None if nobody has it.

    A shared lock is asked for and given back at once.

    Raises:
        OSError: there is no lock file, or it can't be read.
    """
    descriptor = os.open(lock_of(ledger), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        number = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
        return f"process {number} in its own container" if number.isdecimal() else ""
    finally:
        os.close(descriptor)
    return None
