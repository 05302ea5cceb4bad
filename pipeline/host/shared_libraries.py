"""Finds shared libraries as the dynamic linker does, and reads them before they are loaded.

`ctypes.CDLL` holds the interpreter lock during dlopen(3). If the file is a pipe, or on a file
server that does not respond, all threads would stop, and podgpu would handle no signals and no
requests. Reading a file does not hold the lock. So this module reads the file first, and only the
thread that calls it can hang.
"""

import contextlib
import functools
import os
import stat
import struct
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

_CACHE: Final = Path("/etc/ld.so.cache")
_MAGIC: Final = b"glibc-ld.so.cache1.1"
_HEADER_BYTES: Final = 48
_ENTRY: Final = struct.Struct("=iIIIQ")
_DEFAULT_FOLDERS: Final = tuple(map(Path, ("/lib64", "/usr/lib64", "/lib", "/usr/lib")))
_PATH_VARIABLE: Final = "LD_LIBRARY_PATH"
# Without O_NONBLOCK, open would wait for a writer if the file is a pipe.
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_CHUNK: Final = 1 << 20
_ELF_BYTES: Final = 20
"""Bytes at the start of an ELF file, up to and including e_machine."""
_MAX_BYTES: Final = 1 << 30
"""Maximum number of bytes that are read of a file; no library is larger."""
_MAX_CACHE_BYTES: Final = 16 << 20


class NoLibraryFileError(OSError):
    """The file at a path cannot be a library. The text names the file."""


def ready(name: str, environ: Mapping[str, str] | None = None, cache: Path = _CACHE) -> None:
    """Read the file that the dynamic linker would load. Blocks only this thread.

    A missing or unreadable file is not an error: the linker searches more paths than this function,
    and reports the error itself.

    Args:
        name: name of a library, such as `libnvidia-ml.so.1`, or a path with a slash.
        environ: the environment with which the process was started; None for the present one.
        cache: the linker's cache.

    Raises:
        NoLibraryFileError: a searched path is a pipe, a device, a folder or the like.
    """
    for path in _search_paths(name, os.environ if environ is None else environ, cache):
        try:
            descriptor = os.open(path, _FLAGS)
        except OSError:
            continue
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise NoLibraryFileError(f"{path}: is not a regular file")
            if _machine(_read(descriptor)) == _own_machine():
                return
        finally:
            os.close(descriptor)


def _read(descriptor: int) -> bytes:
    """Read a file to its end, up to 1 GiB; return its first bytes."""
    size, head = 0, b""
    with contextlib.suppress(OSError):  # the linker will report the error
        while size < _MAX_BYTES and (chunk := os.read(descriptor, _CHUNK)):
            size += len(chunk)
            head = head or chunk[:_ELF_BYTES]
    return head


def _machine(head: bytes) -> bytes:
    """Return the word size and the machine of an ELF file (elf(5)).

    The linker skips libraries of other machines, such as 32-bit ones.
    """
    return head[4:6] + head[18:_ELF_BYTES]


@functools.cache
def _own_machine() -> bytes:
    try:
        with Path(sys.executable).open("rb") as file:
            return _machine(file.read(_ELF_BYTES))
    except OSError:
        return b""


def _search_paths(name: str, environ: Mapping[str, str], cache: Path) -> Iterator[Path]:
    """Yield the paths that ld.so(8) searches, in the order of ld.so."""
    if "/" in name:
        yield Path(name)
        return
    for folder in environ.get(_PATH_VARIABLE, "").replace(";", ":").split(":"):
        if folder:
            yield Path(folder) / name
    yield from _cached(name, cache)
    for default in _DEFAULT_FOLDERS:
        yield default / name


def _cached(name: str, cache: Path) -> Iterator[Path]:
    """Yield the files for a name in the linker's cache.

    The format is glibc's `struct cache_file_new`: a header of 48 bytes that begins with a magic and
    the number of entries, then entries of 24 bytes with the offsets of name and path, then texts.
    """
    try:
        with cache.open("rb") as file:
            data = file.read(_MAX_CACHE_BYTES)
    except OSError:
        return
    begin = data.find(_MAGIC)  # data in an old format may come before it
    if begin < 0 or len(data) < begin + _HEADER_BYTES:
        return
    data = data[begin:]
    wanted = os.fsencode(name)
    (count,) = struct.unpack_from("=I", data, len(_MAGIC))
    for index in range(min(count, (len(data) - _HEADER_BYTES) // _ENTRY.size)):
        _, key, value, _, _ = _ENTRY.unpack_from(data, _HEADER_BYTES + index * _ENTRY.size)
        if _text(data, key) == wanted:
            yield Path(os.fsdecode(_text(data, value)))


def _text(data: bytes, offset: int) -> bytes:
    end = data.find(b"\0", offset)
    return data[offset:end] if 0 <= offset < end else b""
