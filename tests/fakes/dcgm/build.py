"""Compile the fake client library of DCGM once per content of its source."""

import hashlib
import os
import shutil
import subprocess
import threading
from pathlib import Path

SONAME = "libdcgm.so.4"

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


def build() -> Path:
    """The path of libdcgm.so.4, compiled first when it isn't there yet."""
    source = _HERE / "fakedcgm.c"
    digest = hashlib.sha256(" ".join(_FLAGS).encode() + source.read_bytes())
    library = _ROOT / "build" / "fakedcgm" / digest.hexdigest()[:16] / SONAME
    if library.exists():
        return library
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise RuntimeError("no C compiler: the fake DCGM needs gcc")
    library.parent.mkdir(parents=True, exist_ok=True)
    # Processes and threads may build at the same time: the rename leaves one whole library.
    partial = library.with_name(f"{SONAME}.{os.getpid()}.{threading.get_ident()}")
    command = [compiler, *_FLAGS, "-o", str(partial), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the fake DCGM does not compile:\n{done.stderr}")
    partial.replace(library)
    return library
