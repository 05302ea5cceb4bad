"""Load a library in a separate process, to find out whether loading hangs or crashes.

dlopen(3) runs the library's initialisation functions. A process cannot interrupt them in itself.
"""

import contextlib
import signal
import subprocess
import sys
from typing import Final

PART: Final = 0.3
"""The fraction of a component's deadline that `try_loading` may use."""

_CODE: Final = "import ctypes, sys\ntry: ctypes.CDLL(sys.argv[1])\nexcept OSError: pass"
_KILL_TIMEOUT: Final = 1.0
"""Seconds to wait for the end of a killed process. A process that waits for a disk takes longer."""
_FIX: Final = (
    "the file system of the library or of one of its dependencies does not respond (a file server, "
    "or a driver root mounted from a container that has ended), or the driver hangs (see dmesg)"
)


def try_loading(name: str, seconds: float) -> tuple[str, str]:
    """Load a library in a separate process, and return what went wrong. Blocking.

    Args:
        name: name or path of the library.
        seconds: time limit.

    Returns:
        What went wrong and how to fix it, for people. Both texts are empty if the process exits by
        itself, even if it could not load the library: the code that uses the library reports that.
    """
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _CODE, name],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        status = process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_KILL_TIMEOUT)
        return f"loading the library hangs: it takes longer than {seconds:g} s", _FIX
    if status >= 0:
        return "", ""
    observed = f"loading the library crashes the process: {_signal(-status)}"
    return observed, "the file is damaged or belongs to another driver: reinstall it"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
