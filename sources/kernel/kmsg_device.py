"""Opens `/dev/kmsg` and reads it, record by record."""

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import Final, Self

from pipeline.base.errors import TransientError

RETRY: Final = 60.0
"""Seconds until it is tried again what people have to mend."""

_LONGEST: Final = 1 << 14
"""Bytes; the kernel cuts records well below that, and refuses a read that is too short for one."""

_OVERTAKEN: Final = 1000
"""How often in a row the next record may be overwritten before it is read."""

MOUNT: Final = (
    "mount the host's /dev/kmsg (hostPath, type CharDevice) and give the container access to the "
    "device, as privileged: true does"
)
RIGHTS: Final = (
    "see that the container is given the device (privileged: true), that podgpu runs as root, and "
    "that it has CAP_SYSLOG where the sysctl kernel.dmesg_restrict is 1"
)
NO_LOG: Final = "give the kernel's log, /dev/kmsg of the host"


class Log:
    """The kernel's log, open.

    Args:
        path: of the device.

    Raises:
        TransientError: it can't be opened; the text names the mend.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self.fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            raise self._failure(error) from error
        if stat.S_ISREG(mode := os.fstat(self.fd).st_mode) or stat.S_ISDIR(mode):
            os.close(self.fd)
            raise TransientError(f"{path} is a file or a folder; {NO_LOG}", retry_after=RETRY)

    def __enter__(self) -> Self:
        """Return the log itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        os.close(self.fd)

    def to_the_end(self) -> None:
        """Pass over what is there already; a pipe has no more to pass over than what it gives."""
        with contextlib.suppress(OSError):
            os.lseek(self.fd, 0, os.SEEK_END)

    def read(self) -> bytes | None:
        """Return the next record; None where there is none yet.

        Records that were overwritten before they were read are passed over: the next one's number
        tells how many they are.

        Raises:
            TransientError: it can't be read, or is overwritten faster than that.
        """
        for _ in range(_OVERTAKEN):
            try:
                data = os.read(self.fd, _LONGEST)
            except BlockingIOError:
                return None
            except OSError as error:
                if error.errno == errno.EPIPE:
                    continue
                raise self._failure(error) from error
            if not data:
                raise TransientError(f"{self._path} has come to its end; {NO_LOG}")
            return data
        raise TransientError(
            f"{self._path} is overwritten faster than it can be read; see what floods it"
        )

    def _failure(self, error: OSError) -> TransientError:
        said = f"{self._path}: {error.strerror or error}"
        match error.errno:
            case errno.ENOENT | errno.ENOTDIR | errno.ENXIO | errno.ENODEV:
                return TransientError(f"{said}; {MOUNT}", retry_after=RETRY)
            case errno.EPERM | errno.EACCES:
                return TransientError(f"{said}; {RIGHTS}", retry_after=RETRY)
            case _:
                return TransientError(f"{said}; {NO_LOG}")
