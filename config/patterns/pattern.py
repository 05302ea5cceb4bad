"""A pattern as an option holds it."""

from typing import Final, Self

from config.patterns.program import Program, TooLargeError
from config.patterns.syntax import SyntaxFault, parsed
from config.value_types import FormatError

LONGEST: Final = 1000
"""Characters of a pattern; one of as many names is better written as a list of globs."""


class Pattern:
    """A pattern that is looked for anywhere in a text.

    Attributes:
        text: As it was written.
    """

    __slots__ = ("_program", "text")

    def __init__(self, text: str, program: Program) -> None:
        self.text = text
        self._program = program

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a pattern.

        Raises:
            FormatError: It is no regular expression, or larger than can be gone through quickly.
        """
        if len(text) > LONGEST:
            raise FormatError(text, "is too long", f"the most is {LONGEST} characters")
        try:
            return cls(text, Program(parsed(text)))
        except SyntaxFault as fault:
            place = f"see character {fault.at + 1}"
            raise FormatError(text, f"is no regular expression: {fault.reason}", place) from None
        except TooLargeError:
            hint = "repeat less, or write several patterns"
            raise FormatError(text, "is too large a regular expression", hint) from None

    def found(self, text: str) -> bool:
        """Tell whether it fits anywhere in the text."""
        return self._program.found(text)
