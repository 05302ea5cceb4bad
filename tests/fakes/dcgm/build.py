"""Compile the fake client library of DCGM once per content of its source."""

from pathlib import Path

from tests.support.compiling import compiled

SONAME = "libdcgm.so.4"

_HERE = Path(__file__).resolve().parent


def build() -> Path:
    """The path of libdcgm.so.4, compiled first when it isn't there yet."""
    return compiled("fakedcgm", SONAME, [_HERE / "fakedcgm.c"])
