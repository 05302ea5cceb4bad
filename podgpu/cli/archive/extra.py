"""Checks that the packages of `podgpu[archive]` are installed."""

from importlib.util import find_spec
from typing import Final

from pipeline.base.errors import PermanentError

_PACKAGES: Final = ("duckdb", "obstore")


def check_extra() -> None:
    """Check that the packages are installed, without importing them.

    Raises:
        PermanentError: a package is missing.
    """
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise PermanentError(
            f"an archive needs {' and '.join(missing)}, of podgpu[archive]: use podgpu's image, or "
            "type, in the folder of its source, pip install -c constraints.txt '.[archive]'"
        )
