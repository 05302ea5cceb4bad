"""Following a file that others write: watching, finding its way, reading it with bounds.

Belongs here: what more than one component needs for that. What a file says is its own business.
"""

from pipeline.files.bounded_read import AbsentError, Content, Stamp, UnreadableError, read_file
from pipeline.files.file_watch import Watcher

__all__ = [
    "AbsentError",
    "Content",
    "Stamp",
    "UnreadableError",
    "Watcher",
    "read_file",
]
