"""A regular expression as the value of an option."""

from typing import Final, Self

from config.patterns.program import Program, TooLargeError
from config.patterns.syntax import SyntaxFault, parsed
from config.value_types import FormatError

LONGEST: Final = 1000
"""The longest pattern in characters; for very many names, a list of globs is better."""


class Pattern:
    """A pattern that may match anywhere in a text.

    Attributes:
        text: The pattern as it was written.
    """

    __slots__ = ("_program", "text")

    def __init__(self, text: str, program: Program) -> None:
        self.text = text
        self._program = program

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a pattern.

        Raises:
            FormatError: It is no regular expression, or too large.
        """
        if len(text) > LONGEST:
            raise FormatError(text, "is too long", f"the maximum is {LONGEST} characters")
        try:
            return cls(text, Program(parsed(text)))
        except SyntaxFault as fault:
            place = f"see character {fault.at + 1}"
            raise FormatError(text, f"is no regular expression: {fault.reason}", place) from None
        except TooLargeError:
            hint = "use fewer repetitions, or several patterns"
            raise FormatError(text, "is too large a regular expression", hint) from None

    def found(self, text: str) -> bool:
        """Return whether the pattern matches anywhere in the text."""
        return self._program.found(text)
