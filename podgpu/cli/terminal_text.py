"""Makes texts safe for a terminal, fits them into columns and lines, and prints them.

stdout and stderr may be missing (`podgpu top >&-`), and writing to them may fail.
"""

import os
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from shutil import get_terminal_size
from typing import Final, TextIO

from pipeline.base.safe_text import line

EXIT_UNWRITTEN: Final = 3
"""Exit status if the output could not be written. 1 and 2 are statuses of the commands' results."""

_CUT: Final = "~"
_SEPARATOR: Final = "  "

_SIMILAR: Final = str.maketrans(
    "▁▂▃▄▅▆▇█▒·\N{DEGREE SIGN}├└│─",
    "_.-:=+*#%. |`|-",
)
"""Characters of ASCII for the blocks of graphs, from low to high, for the degree sign, and for the
lines of trees."""

_ZERO_WIDTH: Final = frozenset({"Mn", "Me", "Cf"})
"""Unicode categories of characters without a width: accents, marks, format characters."""

MARK: Final = "*"
"""Mark after a number in a table: a part of the value is unknown."""


def width(text: str) -> int:
    """Return how many columns a text occupies on a terminal."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def terminal_safe(text: str) -> str:
    """Return a text with `?` in place of each character that is not printable."""
    if text.isprintable():
        return text
    text = text.replace("\N{NO-BREAK SPACE}", " ")
    return "".join(c if c.isprintable() else "?" for c in text)


def written(text: str, encoding: str) -> str:
    """Return a text without characters that an encoding lacks: similar ones, or `?`."""
    if text.isascii():
        return text
    try:
        text.encode(encoding)
    except LookupError:  # an encoding that Python doesn't know
        encoding = "ascii"
    except UnicodeEncodeError:
        pass
    else:
        return text
    return text.translate(_SIMILAR).encode(encoding, "replace").decode(encoding)


def fit(text: str, columns: int, *, right: bool = False) -> str:
    """Return a text of exactly the given width: padded, or cut with a `~` at the end.

    Args:
        text: the text.
        columns: the width.
        right: whether the text is aligned to the right.
    """
    text = terminal_safe(text)
    if width(text) > columns:
        text = _start(text, columns - 1) + _CUT if columns > 0 else ""
    padding = " " * (columns - width(text))
    return padding + text if right else text + padding


def middle(text: str, columns: int) -> str:
    """Return a text of at most the given width. A longer text is cut in the middle.

    Names of pods often start alike and differ in a generated part at the end.
    """
    text = terminal_safe(text)
    if width(text) <= columns:
        return text
    if columns < 1:
        return ""
    head = (columns - 1) // 2
    return _start(text, head) + _CUT + _start(text[::-1], columns - 1 - head)[::-1]


def wrapped(text: str, columns: int) -> list[str]:
    """Split a text between words into lines of at most the given width.

    A word that is longer than a line is split. An empty text has no lines.

    Args:
        text: text without line breaks.
        columns: the width, at least 2, because a character can take two columns.
    """
    found: list[str] = []
    current = ""
    for word in terminal_safe(text).split(" "):
        joined = f"{current} {word}" if current else word
        if width(joined) <= columns:
            current = joined
            continue
        if current:
            found.append(current)
        current = word
        while width(current) > columns:
            part = _start(current, columns) or current[0]
            found.append(part)
            current = current[len(part) :]
    return [*found, current] if current else found


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        title: the heading.
        name: whether the column has names, which are aligned left and may be cut. Other columns
            have numbers, which are not cut.
        rank: the column with the highest rank is omitted first if there is no room for all columns;
            a column with rank 0 is never omitted.
        least: minimum width to which names are cut.
    """

    title: str
    name: bool = False
    rank: int = 0
    least: int = 14


def laid_out(columns: Sequence[Column], rows: Sequence[Sequence[str]], available: int) -> list[str]:
    """Return the heading and the rows of a table as lines of text.

    If the table is too wide, columns are omitted, and then names are cut in the middle, the longest
    first.

    Args:
        columns: the columns.
        rows: the rows, with a cell for each column.
        available: width of the terminal; 0 if there is no terminal, so that nothing is cut.
    """
    lines = [[column.title for column in columns], *(list(map(terminal_safe, row)) for row in rows)]
    for at, column in enumerate(columns):
        if not column.name and any(line[at].endswith(MARK) for line in lines):
            for line in lines:
                line[at] = line[at] if line[at].endswith(MARK) else f"{line[at]} "
    room = [max(map(width, texts)) for texts in zip(*lines, strict=True)]
    names = [at for at, column in enumerate(columns) if column.name]
    least = [
        min(room[at], columns[at].least) if at in names else room[at] for at in range(len(room))
    ]
    shown = list(range(len(columns)))

    def too_wide(widths: Sequence[int]) -> bool:
        whole = sum(widths[at] for at in shown) + len(_SEPARATOR) * (len(shown) - 1)
        return 0 < available < whole

    while too_wide(least):
        last = max(shown, key=lambda at: (columns[at].rank, at))
        if not columns[last].rank:
            break
        shown.remove(last)
    # One character at a time from the longest name; there are few.
    while too_wide(room) and (
        long := [at for at in names if at in shown and room[at] > columns[at].least]
    ):
        room[max(long, key=room.__getitem__)] -= 1
    return [
        _SEPARATOR.join(
            fit(middle(line[at], room[at]), room[at], right=at not in names) for at in shown
        ).rstrip()
        for line in lines
    ]


def _start(text: str, columns: int) -> str:
    used = 0
    for at, character in enumerate(text):
        used += _columns(character)
        if used > columns:
            return text[:at]
    return text


def _columns(character: str) -> int:
    if unicodedata.category(character) in _ZERO_WIDTH:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def lines(text: str) -> str:
    """Return a text of several lines with control characters replaced by visible text."""
    # `isprintable` is fast, and almost always true.
    return "\n".join(
        part if part.isprintable() else line(part, len(part)) for part in text.split("\n")
    )


def put(text: str, about: str) -> bool:
    """Print a text on stdout. Characters that its encoding lacks are printed as `?`.

    A closed pipe (`podgpu top | head`) is not an error.

    Args:
        text: one or more lines.
        about: what the text is, for the error message on stderr.

    Returns:
        Whether the text was written.
    """
    stdout = out()
    if stdout is None:
        complain(f"{about} can't be written: there is no stdout")
        return False
    try:
        print(written(text, stdout.encoding or "utf-8"), file=stdout, flush=True)
    except BrokenPipeError:
        _discard(stdout)
    except OSError as error:
        _discard(stdout)
        complain(f"{about} can't be written: {error.strerror}")
        return False
    return True


def complain(text: str) -> None:
    """Print a text on stderr. Nothing happens if there is no stderr, or if writing fails."""
    # The type stubs say that stderr is never None; with `2>&-` it is.
    stderr: TextIO | None = sys.stderr
    if stderr is not None:
        try:
            print(written(text, stderr.encoding or "utf-8"), file=stderr, flush=True)
        except OSError:
            _discard(stderr)


def out() -> TextIO | None:
    """Return stdout; None if the process was started without one."""
    return sys.stdout


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is connected to a terminal."""
    return stream is not None and stream.isatty()


def terminal_width() -> int:
    """Return the terminal's width; 0 if stdout is no terminal, so that nothing is cut."""
    return get_terminal_size((80, 0)).columns if is_terminal(out()) else 0


def _discard(stream: TextIO) -> None:
    """Redirect a stream to /dev/null: the interpreter would try to flush it again at exit."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, stream.fileno())
    os.close(devnull)
