"""Compile the fake client library of DCGM, once for each content of its source."""

from pathlib import Path

from tests.support.compiling import compiled

SONAME = "libdcgm.so.4"

_HERE = Path(__file__).resolve().parent


def build() -> Path:
    """Return the path of libdcgm.so.4. It is compiled if it does not exist."""
    return compiled("fakedcgm", SONAME, [_HERE / "fakedcgm.c"])
