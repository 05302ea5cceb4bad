"""Fake vendor libraries, compiled once for each content of their sources."""

import hashlib
import os
import shutil
import subprocess
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

_BUILD = Path(__file__).resolve().parents[2] / "build"


def compiled(
    name: str,
    soname: str,
    sources: Sequence[Path],
    *,
    also: Iterable[Path] = (),
    flags: Sequence[str] = (),
) -> Path:
    """Return the path of a library; compile it if it does not exist yet.

    Args:
        name: the folder below `build`.
        soname: the soname of the library.
        sources: the files to compile.
        also: further files that the sources include.
        flags: additional compiler flags.
    """
    usual = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-O1", "-pthread"]
    usual.append(f"-Wl,-soname,{soname}")
    digest = hashlib.sha256(" ".join(usual).encode())
    for file in (*sources, *also):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    library = _BUILD / name / digest.hexdigest()[:16] / soname
    if library.exists():
        return library
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise RuntimeError(f"no C compiler: {name} needs gcc")
    library.parent.mkdir(parents=True, exist_ok=True)
    # Processes and threads may build at the same time: each compiles to a separate file, and the
    # rename leaves one complete library in any order.
    partial = library.with_name(f"{soname}.{os.getpid()}.{threading.get_ident()}")
    command = [compiler, *usual, *flags, "-o", str(partial), *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{name} does not compile:\n{done.stderr}")
    partial.replace(library)
    return library
