"""One writer for a ledger: a lock on a file beside it. Blocks."""

import os
from pathlib import Path

from pipeline.files import lock_file
from pipeline.ledger.errors import LedgerError


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
        self._descriptor = os.open(self._path, lock_file.FLAGS, 0o600)
        try:
            lock_file.take(self._descriptor)
        except BlockingIOError:
            owner = lock_file.signed(self._descriptor) or "another process"
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
        lock_file.sign(self._descriptor)

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


def lock_of(ledger: Path) -> Path:
    """Return the lock file of a ledger."""
    return ledger.with_name(f"{ledger.name}.lock")
