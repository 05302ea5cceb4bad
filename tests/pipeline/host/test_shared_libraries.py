"""Tests that a shared library is checked before it is loaded, so that a pipe blocks nothing."""

import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.host.shared_libraries import NoLibraryFileError, ready

ROOT = Path(__file__).parents[3]
NAME = "libpodgpu-none.so.1"
OWN = Path(sys.executable).resolve().read_bytes()[:20]
OF_32_BITS = OWN[:4] + b"\x01" + OWN[5:]


def cache(folder: Path, *entries: tuple[str, str], before: bytes = b"") -> Path:
    """Write the linker's cache as ldconfig(8) does."""
    texts, rows, begin = b"", b"", 48 + 24 * len(entries)
    for entry in entries:
        places = []
        for text in entry:
            places.append(begin + len(texts))
            texts += text.encode() + b"\0"
        rows += struct.pack("=iIIIQ", 0x303, *places, 0, 0)
    head = b"glibc-ld.so.cache1.1" + struct.pack("=II", len(entries), len(texts))
    path = folder / "ld.so.cache"
    path.write_bytes(before + head.ljust(48, b"\0") + rows + texts)
    return path


def fifo(path: Path) -> None:
    os.mkfifo(path)


NO_FILES: dict[str, Callable[[Path], None]] = {"a pipe": fifo, "a folder": Path.mkdir}


@pytest.mark.parametrize("what", NO_FILES)
@pytest.mark.parametrize("way", ["path", "variable", "cache"])
def test_a_library_that_is_not_a_regular_file_is_refused(
    tmp_path: Path, what: str, way: str
) -> None:
    path = tmp_path / NAME
    NO_FILES[what](path)
    cached = cache(tmp_path, *([(NAME, str(path))] if way == "cache" else []))
    environ = {"LD_LIBRARY_PATH": f"/none:{tmp_path}"} if way == "variable" else {}
    with pytest.raises(NoLibraryFileError, match=f"{path}: is not a regular file"):
        ready(str(path) if way == "path" else NAME, environ, cached)


def test_a_missing_library_is_left_for_the_linker_to_report(tmp_path: Path) -> None:
    ready(NAME, {"LD_LIBRARY_PATH": str(tmp_path)}, tmp_path / "no-cache")
    ready(str(tmp_path / NAME), {}, tmp_path / "no-cache")


def test_libraries_of_another_architecture_are_skipped(tmp_path: Path) -> None:
    first, second = tmp_path / "32", tmp_path / "64"
    first.write_bytes(OF_32_BITS)
    fifo(second)
    cached = cache(tmp_path, ("libother.so", "/none"), (NAME, str(first)), (NAME, str(second)))
    with pytest.raises(NoLibraryFileError, match=str(second)):
        ready(NAME, {}, cached)
    first.write_bytes(OWN)
    ready(NAME, {}, cached)


@pytest.mark.parametrize("before", [b"", b"ld.so-1.7.0\0" + b"\0" * 52])
def test_a_cache_may_have_the_old_form_before_the_new_one(tmp_path: Path, before: bytes) -> None:
    fifo(tmp_path / "it")
    with pytest.raises(NoLibraryFileError):
        ready(NAME, {}, cache(tmp_path, (NAME, str(tmp_path / "it")), before=before))


@pytest.mark.parametrize("cut", [0, 20, 30, 48, 60, 75])
def test_a_cache_that_is_cut_off_is_ignored(tmp_path: Path, cut: int) -> None:
    path = cache(tmp_path, (NAME, str(tmp_path / "it")))
    path.write_bytes(path.read_bytes()[:cut])
    ready(NAME, {}, path)


SOURCE = """
import sys
from pathlib import Path
from pipeline.base.errors import TransientError
from sources.hostengine.library import DcgmError, library
from sources.nvml.library import Library

try:
    if sys.argv[1] == "nvml":
        Library().open()
    else:
        library(Path(sys.argv[2]) if sys.argv[2] else None)
except (TransientError, DcgmError, OSError) as error:
    print(type(error).__name__, error)
"""
LIBRARIES = [
    ("nvml", "libnvidia-ml.so.1", False),
    ("dcgm", "libdcgm.so.4", False),
    ("dcgm", "libdcgm.so.4", True),
]


@pytest.mark.slow
@pytest.mark.parametrize(("which", "name", "named"), LIBRARIES)
def test_a_source_reports_a_library_that_is_a_pipe_without_a_wait(
    tmp_path: Path, which: str, name: str, named: bool
) -> None:
    fifo(tmp_path / name)
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", SOURCE, which, str(tmp_path / name) if named else ""],
        cwd=ROOT,
        env={**os.environ, "LD_LIBRARY_PATH": "" if named else str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=25,
        check=False,
    )
    assert time.monotonic() - started < 25
    assert "is not a regular file" in done.stdout, done
