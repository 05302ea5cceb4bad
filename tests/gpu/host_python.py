"""The machine's Python, for programs in containers."""

import os
import sys
from pathlib import Path

_LOADER = Path("/etc/ld.so.cache")


def folders() -> list[str]:
    """Return the node's paths that such a program needs: Python and libraries."""
    prefixes = (sys.prefix, sys.base_prefix, os.path.realpath(sys.executable))
    found = {"/usr", *(f"/{Path(prefix).parts[1]}" for prefix in prefixes)}
    return [*sorted(found), *([str(_LOADER)] if _LOADER.exists() else [])]
