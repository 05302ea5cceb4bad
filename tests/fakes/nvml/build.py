"""Compile the fake NVML, once for each content of its sources."""

import functools
import importlib.util
from pathlib import Path

from tests.support.compiling import compiled

SONAME = "libnvidia-ml.so.1"

_HERE = Path(__file__).resolve().parent


def header() -> Path:
    """Return the path of nvml.h, which the development dependencies install."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for found in sorted(Path(folder).glob("*/include/nvml.h")):
            return found
    raise RuntimeError("no nvml.h: install the development dependencies (nvidia-nvml-dev)")


@functools.cache  # one run of tests does not change the sources
def build() -> Path:
    """Return the folder of libnvidia-ml.so.1. It is compiled if it does not exist."""
    nvml_h = header()
    library = compiled(
        "fakenvml",
        SONAME,
        sorted(_HERE.glob("*.c")),
        also=[*sorted(_HERE.glob("*.h")), nvml_h],
        flags=["-isystem", str(nvml_h.parent)],
    )
    return library.parent
