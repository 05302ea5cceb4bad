"""Whether podgpu can access a path, tested before anything else is done with the path."""

import os
from pathlib import Path


def access_problem(path: Path) -> str:
    """Return why a path cannot be accessed, for people. Blocking.

    The text is empty if the path is accessible or does not exist. `Path.exists` and similar
    methods raise an error in these cases, for example for a folder that podgpu may not enter.
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


def access_fix(path: Path) -> str:
    """Return how to give podgpu access to a path."""
    return (
        f"run podgpu as root or with the capability DAC_OVERRIDE, or let uid {os.geteuid()} into "
        f"{path.parent}"
    )
