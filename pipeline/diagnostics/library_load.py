"""Whether a library can be loaded at all, tried in a process that may hang or break instead of us.

dlopen(3) runs what the library has to run at its start, and nothing here can end it.
"""

import contextlib
import signal
import subprocess
import sys
from typing import Final

PART: Final = 0.3
"""Of a component's deadline: what `try_loading` may take."""

_CODE: Final = "import ctypes, sys\ntry: ctypes.CDLL(sys.argv[1])\nexcept OSError: pass"
_REAPED: Final = 1.0
"""Seconds that the kernel may take to end it; one that waits for a disk stays for longer."""
_FIX: Final = (
    "the file system of the library or of one that it needs does not answer (a file server, a "
    "driver's root that is mounted from a container that is gone), or the driver hangs (see dmesg)"
)


def try_loading(name: str, seconds: float) -> tuple[str, str]:
    """Load a library in a process of its own. Blocking.

    Args:
        name: of the library, or its path.
        seconds: that it may take.

    Returns:
        What went wrong, and what mends it, for people; empty texts if the process ended by itself,
        with the library or without: the latter tells whoever loads it.
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
            process.wait(_REAPED)
        return f"loading it hangs: it took longer than {seconds:g} s", _FIX
    if status >= 0:
        return "", ""
    saw = f"loading it ends the process: {_signal(-status)}"
    return saw, "the file is damaged, or of another driver: install it anew"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
