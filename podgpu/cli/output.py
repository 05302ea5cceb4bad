"""What a command says: made fit for a terminal, which acts on some characters, and printed.

A command may have no stdout or stderr at all (`podgpu top >&-`), or one that takes nothing.
"""

import os
import sys
from typing import Final, TextIO

from pipeline.base.safe_text import line

EXIT_UNWRITTEN: Final = 3
"""Nobody has read what there was to say: neither 1 nor 2, which say something of the node."""


def lines(text: str) -> str:
    """Return a text of several lines without anything that a terminal would act on."""
    # `isprintable` is fast, and nearly always true.
    return "\n".join(
        part if part.isprintable() else line(part, len(part)) for part in text.split("\n")
    )


def put(text: str, about: str) -> bool:
    """Print a text on stdout; what its encoding lacks is `?`.

    A reader who has gone (`podgpu top | head`) has what he wanted.

    Args:
        text: lines.
        about: what it is, for the message on stderr where it can't be written.

    Returns:
        Whether it was written.
    """
    stdout = out()
    if stdout is None:
        complain(f"{about} can't be written: there is no stdout")
        return False
    try:
        print(_said(text, stdout), file=stdout, flush=True)
    except BrokenPipeError:
        _drop(stdout)
    except OSError as error:
        _drop(stdout)
        complain(f"{about} can't be written: {error.strerror}")
        return False
    return True


def complain(text: str) -> None:
    """Print a text on stderr, if there is one that takes it."""
    # Typed as if it were always there; `2>&-` leaves none.
    stderr: TextIO | None = sys.stderr
    if stderr is not None:
        try:
            print(_said(text, stderr), file=stderr, flush=True)
        except OSError:
            _drop(stderr)


def out() -> TextIO | None:
    """Return stdout; None where the process was started without."""
    return sys.stdout


def is_terminal(stream: TextIO | None) -> bool:
    """Whether somebody sits there."""
    return stream is not None and stream.isatty()


def _said(text: str, stream: TextIO) -> str:
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)


def _drop(stream: TextIO) -> None:
    """Let nothing more be written: the interpreter tries it again at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
