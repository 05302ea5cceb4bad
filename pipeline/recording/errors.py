"""Errors in reading and writing recordings."""


class RecordingError(Exception):
    """A recording cannot be read or written. The text says which file, and what is wrong."""


class LineError(Exception):
    """A line is invalid. The reader adds the file and the line number to the text."""


class NewerFormatError(LineError):
    """The header has a format version that is newer than this podgpu's."""
