"""Following a file that others write: watching, finding its way, reading it with bounds.

Belongs here: what more than one component needs for that. What a file says is its own business.
"""

from pipeline.files.following import FileOptions, follow
from pipeline.files.looking import Listed
from pipeline.files.reading import AbsentError, Content, Stamp, UnreadableError, read_file
from pipeline.files.watching import Watcher

__all__ = [
    "AbsentError",
    "Content",
    "FileOptions",
    "Listed",
    "Stamp",
    "UnreadableError",
    "Watcher",
    "follow",
    "read_file",
]
