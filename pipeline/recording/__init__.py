"""The recording format: the events of a node as gzip-compressed JSON lines.

The first line is the header. Each further line is one envelope. The source `replay` plays
recordings, see `docs/sources/replay.md`.
"""

from pipeline.recording.errors import RecordingError
from pipeline.recording.header import Header
from pipeline.recording.reader import CHUNK_BYTES, RecordingParser, RecordingReader
from pipeline.recording.time_shift import TIMESTAMP_SUFFIX, shifted
from pipeline.recording.writer import RecordingWriter

__all__ = [
    "CHUNK_BYTES",
    "TIMESTAMP_SUFFIX",
    "Header",
    "RecordingError",
    "RecordingParser",
    "RecordingReader",
    "RecordingWriter",
    "shifted",
]
