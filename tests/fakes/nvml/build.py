"""Compile the fake NVML once per content of its sources."""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import threading
from pathlib import Path

SONAME = "libnvidia-ml.so.1"

_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parents[2]
_FLAGS = (
    "-shared",
    "-fPIC",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-O1",
    "-pthread",
    f"-Wl,-soname,{SONAME}",
)


def header() -> Path:
    """The nvml.h that the development dependencies install."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for found in sorted(Path(folder).glob("*/include/nvml.h")):
            return found
    raise RuntimeError("no nvml.h: install the development dependencies (nvidia-nvml-dev)")


def build() -> Path:
    """The folder that holds libnvidia-ml.so.1, compiled first when it isn't there yet."""
    nvml_h = header()
    sources = sorted(_HERE.glob("*.c"))
    digest = hashlib.sha256(" ".join(_FLAGS).encode())
    for file in (*sources, *sorted(_HERE.glob("*.h")), nvml_h):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    folder = _ROOT / "build" / "fakenvml" / digest.hexdigest()[:16]
    library = folder / SONAME
    if library.exists():
        return folder
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise RuntimeError("no C compiler: the fake NVML needs gcc")
    folder.mkdir(parents=True, exist_ok=True)
    # Processes and threads may build at the same time: each compiles to a name of its own, and the
    # rename leaves one whole library whoever comes last.
    partial = folder / f"{SONAME}.{os.getpid()}.{threading.get_ident()}"
    command = [compiler, *_FLAGS, "-isystem", str(nvml_h.parent), "-o", str(partial)]
    done = subprocess.run(
        [*command, *map(str, sources)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"the fake NVML does not compile:\n{done.stderr}")
    partial.replace(library)
    return folder
