"""Repair the end of a file that may end in the middle of a line."""

import os
from typing import Final

import orjson

from sinks.jsonl.line_encoder import PREFIX

_BLOCK: Final = 64 << 10
_MAX_TAIL: Final = 4 << 20


def repair_tail(fd: int) -> None:
    """Make the file end with a complete line.

    If the last line is an incomplete line of podgpu, it is removed: no reader could parse it. Any
    other line without a newline gets one. So no readable data is lost, and lines are not joined.
    """
    size = os.fstat(fd).st_size
    if size == 0 or os.pread(fd, 1, size - 1) == b"\n":
        return
    tail = b""
    start = size
    while start > 0 and len(tail) < _MAX_TAIL and b"\n" not in tail:
        step = min(_BLOCK, start)
        start -= step
        tail = os.pread(fd, step, start) + tail
    last_line = tail.rfind(b"\n") + 1
    if (last_line or start == 0) and _is_torn(tail[last_line:]):
        os.ftruncate(fd, start + last_line)
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
