"""The end of a file that somebody may have left in the middle of a line."""

import os
from typing import Final

import orjson

from sinks.jsonl.line_encoder import PREFIX

_BLOCK: Final = 64 << 10
_LONGEST: Final = 4 << 20


def repair_tail(fd: int) -> None:
    """Make the file end with a whole line.

    A line of ours that was cut off is cut away, as nobody could read it. One that only lacks its
    end gets it, and so does anything that isn't ours: nothing is lost that could be read, and no
    two lines become one.
    """
    size = os.fstat(fd).st_size
    if size == 0 or os.pread(fd, 1, size - 1) == b"\n":
        return
    tail = b""
    start = size
    while start > 0 and len(tail) < _LONGEST and b"\n" not in tail:
        step = min(_BLOCK, start)
        start -= step
        tail = os.pread(fd, step, start) + tail
    found = tail.rfind(b"\n") + 1
    if (found or start == 0) and _is_torn(tail[found:]):
        os.ftruncate(fd, start + found)
    else:
        os.write(fd, b"\n")


def _is_torn(line: bytes) -> bool:
    if not (line.startswith(PREFIX) or PREFIX.startswith(line)):
        return False
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return True
    return False
