"""Opens `/dev/kmsg` and reads its records."""

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import Final, Self

from pipeline.base.errors import TransientError

RETRY: Final = 60.0
"""Seconds until the next attempt if a user must fix the cause."""

_MAX_RECORD: Final = 1 << 14
"""Size of a read in bytes. Records are shorter, and the kernel refuses a read that is too short."""

_MAX_OVERWRITTEN: Final = 1000
"""How many successive reads may fail because the record was overwritten."""

MOUNT: Final = (
    "mount the host's /dev/kmsg (hostPath, type CharDevice) and give the container access to the "
    "device, as privileged: true does"
)
RIGHTS: Final = (
    "give the container access to the device (privileged: true), run podgpu as root, and add "
    "CAP_SYSLOG if the sysctl kernel.dmesg_restrict is 1"
)
NO_LOG: Final = "set path to the kernel log, /dev/kmsg of the host"


class Log:
    """The opened kernel log.

    Args:
        path: path of the device.

    Raises:
        TransientError: the log cannot be opened; the text names the fix.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self.fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            raise self._failure(error) from error
        if stat.S_ISREG(mode := os.fstat(self.fd).st_mode) or stat.S_ISDIR(mode):
            os.close(self.fd)
            raise TransientError(
                f"{path} is a file or a folder, not a log; {NO_LOG}", retry_after=RETRY
            )

    def __enter__(self) -> Self:
        """Return the log itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the log."""
        os.close(self.fd)

    def skip_to_end(self) -> None:
        """Skip the existing records. A pipe cannot skip: its records are read."""
        with contextlib.suppress(OSError):
            os.lseek(self.fd, 0, os.SEEK_END)

    def read(self) -> bytes | None:
        """Return the next record; None if there is none yet.

        Records that were overwritten are skipped; the number of the next record shows how many.

        Raises:
            TransientError: the log cannot be read, ends, or is overwritten faster than it is read.
        """
        for _ in range(_MAX_OVERWRITTEN):
            try:
                data = os.read(self.fd, _MAX_RECORD)
            except BlockingIOError:
                return None
            except OSError as error:
                if error.errno == errno.EPIPE:
                    continue
                raise self._failure(error) from error
            if not data:
                raise TransientError(
                    f"{self._path} has an end, so it is not a kernel log; {NO_LOG}"
                )
            return data
        raise TransientError(
            f"{self._path}: is overwritten faster than podgpu reads it; check which driver or "
            "program writes so many messages"
        )

    def _failure(self, error: OSError) -> TransientError:
        text = f"{self._path}: {error.strerror or error}"
        match error.errno:
            case errno.ENOENT | errno.ENOTDIR | errno.ENXIO | errno.ENODEV:
                return TransientError(f"{text}; {MOUNT}", retry_after=RETRY)
            case errno.EPERM | errno.EACCES:
                return TransientError(f"{text}; {RIGHTS}", retry_after=RETRY)
            case _:
                return TransientError(f"{text}; {NO_LOG}")
