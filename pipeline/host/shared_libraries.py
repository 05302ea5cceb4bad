"""Shared objects that are to be loaded: looked for where the dynamic linker will, and read first.

`ctypes.CDLL` holds the interpreter's lock for as long as dlopen(3) takes. Where the file is a pipe,
or on a file server that is away, all threads would stand still with it: no signal would be heard
and no page answered. Reading a file lets others go on, so it is read to its end before; what hangs
then is one thread.
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
_HEAD: Final = 48
_ENTRY: Final = struct.Struct("=iIIIQ")
_USUAL: Final = tuple(map(Path, ("/lib64", "/usr/lib64", "/lib", "/usr/lib")))
_PATHS: Final = "LD_LIBRARY_PATH"
# Without O_NONBLOCK, opening a pipe would wait for a writer.
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_CHUNK: Final = 1 << 20
_ELF: Final = 20
"""Bytes of an ELF file's beginning, e_machine the last of them."""
_MOST: Final = 1 << 30
"""Bytes after which a file is read no further: no library has as many."""
_MOST_CACHE: Final = 16 << 20


class NoLibraryFileError(OSError):
    """What stands at the path can't be a library; the text names it."""


def ready(name: str, environ: Mapping[str, str] | None = None, cache: Path = _CACHE) -> None:
    """Read the file that the dynamic linker would load. Blocks, but no other thread.

    A file that isn't found is no error: the linker looks in more places, and says it itself.

    Args:
        name: of a file in the linker's places, such as `libnvidia-ml.so.1`, or with a slash a path.
        environ: the environment that the process was started with; None for the present one.
        cache: the linker's.

    Raises:
        NoLibraryFileError: a pipe, a device, a folder or the like stands there.
    """
    for path in _places(name, os.environ if environ is None else environ, cache):
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
    """Read a file to its end; return its first bytes."""
    size, head = 0, b""
    with contextlib.suppress(OSError):  # the linker tells what is wrong with it
        while size < _MOST and (chunk := os.read(descriptor, _CHUNK)):
            size += len(chunk)
            head = head or chunk[:_ELF]
    return head


def _machine(head: bytes) -> bytes:
    """Return what tells the libraries of one machine from another's; see elf(5).

    The linker passes over those of others, as of 32 bits beside 64.
    """
    return head[4:6] + head[18:_ELF]


@functools.cache
def _own_machine() -> bytes:
    try:
        with Path(sys.executable).open("rb") as file:
            return _machine(file.read(_ELF))
    except OSError:
        return b""


def _places(name: str, environ: Mapping[str, str], cache: Path) -> Iterator[Path]:
    """Yield where ld.so(8) looks, in its order."""
    if "/" in name:
        yield Path(name)
        return
    for folder in environ.get(_PATHS, "").replace(";", ":").split(":"):
        if folder:
            yield Path(folder) / name
    yield from _cached(name, cache)
    for place in _USUAL:
        yield place / name


def _cached(name: str, cache: Path) -> Iterator[Path]:
    """Yield the files that the linker's cache has of a name.

    The form is glibc's `struct cache_file_new`: a head of 48 bytes with the number of entries
    behind the magic, entries of 24 bytes with the offsets of name and path, and the texts.
    """
    try:
        with cache.open("rb") as file:
            data = file.read(_MOST_CACHE)
    except OSError:
        return
    begin = data.find(_MAGIC)  # an old form may stand before it
    if begin < 0 or len(data) < begin + _HEAD:
        return
    data = data[begin:]
    wanted = os.fsencode(name)
    (count,) = struct.unpack_from("=I", data, len(_MAGIC))
    for at in range(min(count, (len(data) - _HEAD) // _ENTRY.size)):
        _, key, value, _, _ = _ENTRY.unpack_from(data, _HEAD + at * _ENTRY.size)
        if _text(data, key) == wanted:
            yield Path(os.fsdecode(_text(data, value)))


def _text(data: bytes, at: int) -> bytes:
    end = data.find(b"\0", at)
    return data[at:end] if 0 <= at < end else b""
