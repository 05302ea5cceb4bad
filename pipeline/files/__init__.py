"""Reading, watching and replacing files that podgpu shares with other programs.

What a file means is not handled here.
"""

from pipeline.files.bounded_read import (
    AbsentError,
    Content,
    Stamp,
    UnreadableError,
    read_file,
    read_local_file,
)
from pipeline.files.file_watch import Watcher

__all__ = [
    "AbsentError",
    "Content",
    "Stamp",
    "UnreadableError",
    "Watcher",
    "read_file",
    "read_local_file",
]
