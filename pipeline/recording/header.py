"""The first line of a recording."""

from dataclasses import dataclass
from typing import Final, Self

import msgspec

from pipeline.model import Instant
from pipeline.recording.errors import LineError, NewerFormatError
from pipeline.recording.json_text import dump, load

FORMAT: Final = 1
"""Raised when a reader of the format before would misread a recording. A new kind of event or a new
key doesn't raise it: readers pass over what they don't know."""


@dataclass(frozen=True, slots=True)
class Header:
    """Where a recording comes from.

    Attributes:
        version: of the podgpu that recorded.
        node: the node's name.
        started: when the recording began; all other times are told relative to this.
    """

    version: str
    node: str
    started: Instant

    def encode(self) -> bytes:
        """Return the first line."""
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
        """Read the first line.

        Raises:
            LineError: it is not the first line of a recording that this podgpu can read.
        """
        told = load(line)
        format_ = told.get("podgpu_recording") if isinstance(told, dict) else None
        if not isinstance(format_, int) or format_ < 1:
            raise LineError("does not begin a recording")
        if format_ > FORMAT:
            raise NewerFormatError(
                f"tells format {format_}, which is newer than this podgpu's {FORMAT}: "
                "play it with a newer podgpu"
            )
        try:
            line_ = msgspec.convert(told, _Line)
        except msgspec.ValidationError as error:
            raise LineError(f"does not begin a recording: {error}") from error
        return cls(line_.version, line_.node, Instant(line_.started_mono_ns, line_.started_wall_ns))


class _Line(msgspec.Struct):
    version: str
    started_wall_ns: int
    started_mono_ns: int
    node: str = ""
