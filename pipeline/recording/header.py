"""The first line of a recording."""

from dataclasses import dataclass
from typing import Final, Self

import msgspec

from pipeline.model import Instant
from pipeline.recording.errors import LineError, NewerFormatError
from pipeline.recording.json_text import dump, load

FORMAT: Final = 1
"""Version of the format. It increases only if older readers would misread a recording. New types of
events and new keys do not increase it: readers ignore what they do not know."""


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a recording.

    Attributes:
        version: version of the podgpu that recorded.
        node: name of the node.
        started: start time of the recording. All other times are relative to it.
    """

    version: str
    node: str
    started: Instant

    def encode(self) -> bytes:
        """Return the header as the first line of a recording."""
        return dump(
            {
                "podgpu_recording": FORMAT,
                "version": self.version,
                "started_wall_ns": self.started.wall_ns,
                "started_mono_ns": self.started.mono_ns,
                "node": self.node,
            }
        )

    @classmethod
    def decode(cls, line: bytes) -> Self:
        """Parse the first line.

        Raises:
            LineError: the line is not the header of a recording that this podgpu can read.
        """
        parsed = load(line)
        format_ = parsed.get("podgpu_recording") if isinstance(parsed, dict) else None
        if not isinstance(format_, int) or format_ < 1:
            raise LineError("is not the header of a recording")
        if format_ > FORMAT:
            raise NewerFormatError(
                f"has format {format_}, which is newer than this podgpu's {FORMAT}: "
                "replay it with a newer podgpu"
            )
        try:
            line_ = msgspec.convert(parsed, _Line)
        except msgspec.ValidationError as error:
            raise LineError(f"is not the header of a recording: {error}") from error
        return cls(line_.version, line_.node, Instant(line_.started_mono_ns, line_.started_wall_ns))


class _Line(msgspec.Struct):
    version: str
    started_wall_ns: int
    started_mono_ns: int
    node: str = ""
