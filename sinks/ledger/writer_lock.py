"""A lock file next to the ledger, which ensures that the ledger has only one writer."""

import os
from pathlib import Path

from pipeline.files import lock_file
from pipeline.ledger.file_open import LedgerError


class Lock:
    """The lock of a ledger's writer. The kernel releases the lock when the process ends.

    It is a separate file, because the ledger may be renamed and replaced by a new one.

    Args:
        ledger: the ledger file.
    """

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self._path = lock_of(ledger)
        self._descriptor = -1

    def take(self) -> None:
        """Take the lock, unless this object holds it already. Tries for a tenth of a second.

        Raises:
            LedgerError: another process holds the lock; the reason is `locked`.
            OSError: the lock file cannot be created or locked.
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
            raise LedgerError(
                str(self._ledger),
                f"is in use by {owner}",
                "each podgpu needs its own ledger; a podgpu that is being replaced releases it",
                reason="locked",
            ) from None
        except OSError:
            self.release()
            raise
        lock_file.sign(self._descriptor)

    def held(self) -> bool:
        """Whether this object holds the lock, and the lock file was not replaced."""
        if self._descriptor < 0:
            return False
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._path.lstat())
        except OSError:
            return False

    def release(self) -> None:
        """Release the lock."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


def lock_of(ledger: Path) -> Path:
    """Return the path of a ledger's lock file."""
    return ledger.with_name(f"{ledger.name}.lock")
