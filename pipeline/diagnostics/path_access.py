"""Whether a path can be looked at at all, told before anything is asked of it."""

import os
import stat
from pathlib import Path


def access_problem(path: Path) -> str:
    """Return why a path can't be looked at, for people; empty if it can, or isn't there. Blocking.

    `Path.exists` and the like raise for what this tells, such as a folder of somebody else's above.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except PermissionError:
        return f"permission denied to uid {os.geteuid()}"
    except (OSError, ValueError) as error:
        code = error.errno if isinstance(error, OSError) else None
        return os.strerror(code).lower() if code else str(error)
    return ""


def is_socket(path: Path) -> bool:
    """Whether a socket is there, as far as can be seen. Blocking."""
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def access_fix(path: Path) -> str:
    """Return what lets podgpu look at a path."""
    return (
        f"run podgpu as root or with the capability DAC_OVERRIDE, or let uid {os.geteuid()} into "
        f"{path.parent}"
    )
