"""Errors in reading and writing recordings."""


class RecordingError(Exception):
    """A recording cannot be read or written. The text contains the file, the line and the fix."""


class LineError(Exception):
    """A line is invalid. The reader adds the file and the line's number."""


class NewerFormatError(LineError):
    """The first line has a format that is newer than this podgpu."""
