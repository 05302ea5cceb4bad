"""Print texts of commands, without characters that control a terminal.

A command can have no stdout or stderr (`podgpu top >&-`), or one that cannot be written to.
"""

import os
import sys
from typing import Final, TextIO

from pipeline.base.safe_text import line
from podgpu.cli.terminal_text import written

EXIT_UNWRITTEN: Final = 3
"""Exit status if the output could not be written. 1 and 2 report on the node instead."""


def lines(text: str) -> str:
    """Return a text of several lines with control characters made harmless."""
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
    """Print a text on stderr, if there is a stderr that can be written to."""
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


def _discard(stream: TextIO) -> None:
    """Redirect a stream to /dev/null: the interpreter would try to flush it again at exit."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, stream.fileno())
    os.close(devnull)
