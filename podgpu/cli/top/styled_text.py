"""Text with styles, fitted into columns of a terminal. Pure.

No style has a background: the terminal's own background stays as it is.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from podgpu.cli.terminal_text import fit, terminal_safe
from podgpu.cli.terminal_text import width as wide


class Style(Enum):
    """What a text is. `screen` chooses colours and attributes of the terminal for it."""

    PLAIN = auto()
    STRONG = auto()
    HEADING = auto()
    SOFT = auto()
    USE = auto()
    MEMORY = auto()
    POWER = auto()
    WARNING = auto()
    CRITICAL = auto()


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a line in one style.

    Attributes:
        text: printable text.
        style: the style.
    """

    text: str
    style: Style = Style.PLAIN


Line: TypeAlias = tuple[Span, ...]
"""A line of the screen, or a part of it."""

EMPTY: Line = ()


def styled(text: str, style: Style = Style.PLAIN) -> Line:
    """Return a text as a line in one style; characters that are not printable become `?`."""
    return (Span(terminal_safe(text), style),) if text else EMPTY


def plain_text(line: Line) -> str:
    """Return the text of a line without styles."""
    return "".join(span.text for span in line)


def width_of(line: Line) -> int:
    """Return how many columns a line occupies."""
    return sum(wide(span.text) for span in line)


def fitted(line: Line, columns: int, *, right: bool = False) -> Line:
    """Return a line of exactly the given width: padded, or cut with a `~` at the end.

    Args:
        line: the line.
        columns: the width.
        right: whether the text is aligned to the right.
    """
    used = width_of(line)
    if used <= columns:
        padding = styled(" " * (columns - used))
        return (*padding, *line) if right else (*line, *padding)
    found: list[Span] = []
    left = columns
    for span in line:
        occupied = wide(span.text)
        # The last part that fits is cut too if nothing after it fits, so that the `~` is seen.
        if occupied >= left:
            cut = fit(f"{span.text}~" if occupied == left else span.text, left)
            found += styled(cut, span.style)
            break
        found.append(span)
        left -= occupied
    return tuple(found)


def joined(parts: list[Line], gap: int = 1) -> Line:
    """Return lines beside each other, with the given number of blanks between them."""
    found: list[Span] = []
    for at, part in enumerate(parts):
        found += (styled(" " * gap) if at and gap else EMPTY) + part
    return tuple(found)


def restyled(line: Line, style: Style) -> Line:
    """Return a line in another style, as one span."""
    return styled(plain_text(line), style)
