"""The terminal: the only place that knows of curses."""

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
from podgpu.cli.top.poller import Asker
from podgpu.cli.top.ui_state import State, pressed
from podgpu.cli.top.view import Frame, Style, View

_WAIT_MS: Final = 250
"""How long a key is waited for before what is known is drawn again."""

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


def show(asker: Asker) -> None:
    """Show what is asked for until the user has seen enough.

    Raises:
        PermanentError: nothing is known of this kind of terminal, or nothing can be drawn in it.
        SystemExit: a signal ends it; the terminal is as it was before.
    """
    # Without the locale that is asked for it is the plain one, in ASCII.
    with suppress(locale.Error):
        locale.setlocale(locale.LC_ALL, "")
    # Else the key Esc alone takes a second: it might begin one of the longer ones.
    os.environ.setdefault("ESCDELAY", "25")
    asker.start()
    try:
        curses.setupterm()
        if not curses.tigetstr("cup"):
            # curses writes all the same: pieces of lines, wherever the cursor happens to be.
            raise _unfit("it can't put its cursor anywhere")
        with _ended_by(signal.SIGTERM):
            curses.wrapper(_loop, asker)
    except curses.error as error:
        raise _unfit(str(error)) from error
    except KeyboardInterrupt:
        return
    finally:
        asker.stop()


def _unfit(why: str) -> PermanentError:
    kind = os.environ.get("TERM", "")
    return PermanentError(f"the terminal (TERM={kind!r}): {why}; take --once")


@contextmanager
def _ended_by(number: signal.Signals) -> Iterator[None]:
    """Let a signal end the program the long way, on which the terminal is put back in order."""

    def end(*_: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(number, end)
    try:
        yield
    finally:
        signal.signal(number, before)


def _loop(window: curses.window, asker: Asker) -> None:
    line = select.poll()
    line.register(sys.stdin.fileno(), 0)
    window.timeout(_WAIT_MS)
    _hide_cursor()
    state, view = State(), View()
    while True:
        height, width = window.getmaxyx()
        shown = view.frame(asker.feed(), state, width, height)
        state = replace(state, offset=shown.offset)
        _draw(window, shown)
        key = _key(window)
        if key is None:
            # The terminal is gone. Nobody may have told: SIGHUP can be ignored, as under nohup.
            if line.poll(0):
                return
            continue
        after = pressed(state, key, shown.page)
        if after is None:
            return
        state = after


def _draw(window: curses.window, shown: Frame) -> None:
    window.erase()
    for at, (line, style) in enumerate(shown.lines):
        try:
            window.addstr(at, 0, written(line, window.encoding), _ATTRIBUTES[style])
        except curses.error:
            # Behind the last place of all there is none for the cursor; or the terminal has
            # become smaller since it was asked.
            continue
    window.refresh()


def _key(window: curses.window) -> str | None:
    """Return the key that was pressed; None where there was none, or none that has a name."""
    try:
        key = window.get_wch()
    except curses.error:
        return None
    if isinstance(key, int):
        return _KEYS.get(key)
    return "escape" if key == "\x1b" else key


def _hide_cursor() -> None:
    try:
        curses.curs_set(0)
    except curses.error:
        return
