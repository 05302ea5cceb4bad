"""What can be wrong with a recording."""


class RecordingError(Exception):
    """A recording can't be read or written; the text names the file, the line and the mend."""


class LineError(Exception):
    """A line is not what it should be; the reader adds the file and the line's number."""


class NewerFormatError(LineError):
    """The first line is of a format that came after this podgpu's."""
