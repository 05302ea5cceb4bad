"""Shared libraries that stand in for a vendor's, compiled once per content of their sources."""

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
    """Return the path of a library, compiled first when it isn't there yet.

    Args:
        name: of the folder below `build`.
        soname: the library's.
        sources: what is compiled.
        also: further files that it is made of.
        flags: of the compiler, besides the usual ones.
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
    # Processes and threads may build at the same time: each compiles to a name of its own, and the
    # rename leaves one whole library whoever comes last.
    partial = library.with_name(f"{soname}.{os.getpid()}.{threading.get_ident()}")
    command = [compiler, *usual, *flags, "-o", str(partial), *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{name} does not compile:\n{done.stderr}")
    partial.replace(library)
    return library
