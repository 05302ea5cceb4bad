"""Following a file that others write: watching, finding its way, reading it with bounds.

Belongs here: what more than one source needs to follow a file. What a file says is its source's
business.
"""

from pipeline.files.following import FileOptions, follow
from pipeline.files.looking import Listed
from pipeline.files.reading import Content, Stamp, UnreadableError, read_file
from pipeline.files.watching import Watcher

__all__ = [
    "Content",
    "FileOptions",
    "Listed",
    "Stamp",
    "UnreadableError",
    "Watcher",
    "follow",
    "read_file",
]
