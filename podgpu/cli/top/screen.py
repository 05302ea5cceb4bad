"""Draws on the terminal and reads keys. The only module that uses curses."""

import curses
import locale
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

from pipeline.base.errors import PermanentError
from podgpu.cli.terminal_text import written
from podgpu.cli.top.command import Poller
from podgpu.cli.top.ui_state import State, pressed
from podgpu.cli.top.view import Frame, Style, frame

_WAIT_MS: Final = 250
"""Milliseconds to wait for a key before the screen is drawn again."""

_KEYS: Final = {
    curses.KEY_UP: "up",
    curses.KEY_DOWN: "down",
    curses.KEY_PPAGE: "page-up",
    curses.KEY_NPAGE: "page-down",
    curses.KEY_HOME: "home",
    curses.KEY_END: "end",
    curses.KEY_ENTER: "enter",
    curses.KEY_BACKSPACE: "backspace",
}
_ATTRIBUTES: Final = {
    Style.PLAIN: curses.A_NORMAL,
    Style.BOLD: curses.A_BOLD,
    Style.REVERSE: curses.A_REVERSE,
}


def show(poller: Poller) -> None:
    """Show the status until the user quits.

    Raises:
        PermanentError: the type of the terminal is unknown or unsuitable.
        SystemExit: SIGTERM was received; the terminal is restored.
    """
    # If the user's locale is not available, the default one with ASCII is used.
    with suppress(locale.Error):
        locale.setlocale(locale.LC_ALL, "")
    # Without this, curses waits a second after Esc, which can be the start of an escape sequence.
    os.environ.setdefault("ESCDELAY", "25")
    poller.start()
    try:
        curses.setupterm()
        if not curses.tigetstr("cup"):
            # curses would draw anyway, with parts of lines in wrong places.
            raise _unsuitable("it cannot move the cursor")
        with _exit_on(signal.SIGTERM):
            curses.wrapper(_loop, poller)
    except curses.error as error:
        raise _unsuitable(str(error)) from error
    except KeyboardInterrupt:
        return
    finally:
        poller.stop()


def _unsuitable(why: str) -> PermanentError:
    kind = os.environ.get("TERM", "")
    return PermanentError(f"the terminal (TERM={kind!r}): {why}; use --once")


@contextmanager
def _exit_on(number: signal.Signals) -> Iterator[None]:
    """Raise SystemExit on a signal, so that the terminal is restored."""

    def end(*_: object) -> None:
        raise SystemExit(128 + number)

    previous = signal.signal(number, end)
    try:
        yield
    finally:
        signal.signal(number, previous)


def _loop(window: curses.window, poller: Poller) -> None:
    stdin_poll = select.poll()
    stdin_poll.register(sys.stdin.fileno(), 0)
    window.timeout(_WAIT_MS)
    with suppress(curses.error):
        curses.curs_set(0)
    state = State()
    while True:
        height, width = window.getmaxyx()
        shown = frame(poller.feed(), state, width, height)
        state = replace(state, offset=shown.offset)
        _draw(window, shown)
        key = _key(window)
        if key is None:
            # The terminal may be closed without SIGHUP, which nohup ignores.
            if stdin_poll.poll(0):
                return
            continue
        new_state = pressed(state, key, shown.page)
        if new_state is None:
            return
        state = new_state


def _draw(window: curses.window, shown: Frame) -> None:
    window.erase()
    for at, (line, style) in enumerate(shown.lines):
        # curses raises an error when the cursor cannot move past the last character of the screen,
        # and when the terminal has become smaller in the meantime.
        with suppress(curses.error):
            window.addstr(at, 0, written(line, window.encoding), _ATTRIBUTES[style])
    window.refresh()


def _key(window: curses.window) -> str | None:
    """Return the key that was pressed; None if there was none in time, or it is unknown."""
    try:
        key = window.get_wch()
    except curses.error:
        return None
    if isinstance(key, int):
        return _KEYS.get(key)
    return "escape" if key == "\x1b" else key
