"""Draws on the terminal and reads keys. The only module that uses curses.

It never sets a background. Without `use_default_colors`, curses would paint everything black.
"""

import curses
import locale
import os
import select
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

from podgpu.cli.terminal_text import written
from podgpu.cli.top.poller import Poller
from podgpu.cli.top.styled_text import Style
from podgpu.cli.top.ui_state import State, pressed
from podgpu.cli.top.view import Frame, frame

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
_DEFAULT: Final = -1
"""The terminal's own colour."""

_COLOURS: Final = {
    Style.USE: curses.COLOR_GREEN,
    Style.MEMORY: curses.COLOR_CYAN,
    Style.POWER: curses.COLOR_BLUE,
    Style.WARNING: curses.COLOR_MAGENTA,
    Style.CRITICAL: curses.COLOR_RED,
}
"""Foreground colours, from the first eight, whose tones the terminal's palette chooses.

Only red and magenta are used for text: palettes make them readable on light and dark backgrounds.
Yellow on white is not readable.
"""

_ATTRIBUTES: Final = {
    Style.STRONG: curses.A_BOLD,
    Style.HEADING: curses.A_BOLD | curses.A_UNDERLINE,
    Style.SOFT: curses.A_DIM,
    Style.WARNING: curses.A_BOLD,
    Style.CRITICAL: curses.A_BOLD,
}


def can_draw() -> bool:
    """Return whether curses knows the terminal, and the terminal can move the cursor."""
    try:
        curses.setupterm()
    except curses.error:
        return False
    # Without it, curses would draw anyway, with parts of lines in wrong places.
    return bool(curses.tigetstr("cup"))


def show(poller: Poller) -> None:
    """Show the status until the user quits, on a terminal for which `can_draw` is true.

    Raises:
        SystemExit: SIGTERM was received; the terminal is restored.
    """
    # If the user's locale is not available, the default one with ASCII is used.
    with suppress(locale.Error):
        locale.setlocale(locale.LC_ALL, "")
    # Without this, curses waits a second after Esc, which can be the start of an escape sequence.
    os.environ.setdefault("ESCDELAY", "25")
    poller.start()
    try:
        with _exit_on(signal.SIGTERM), _screen() as window:
            _loop(window, poller, _styles())
    except KeyboardInterrupt:
        return
    finally:
        poller.stop()


@contextmanager
def _screen() -> Iterator[curses.window]:
    """Start curses as `curses.wrapper` does, but without colours, and restore the terminal."""
    window = curses.initscr()
    try:
        curses.noecho()
        curses.cbreak()
        window.keypad(True)
        yield window
    finally:
        window.keypad(False)
        curses.echo()
        curses.nocbreak()
        curses.endwin()


def _styles() -> Mapping[Style, int]:
    """Return the attributes of each style: with colours, if the terminal and the user allow them.

    The variable NO_COLOR (https://no-color.org) with any text means no colours.
    """
    found = {style: _ATTRIBUTES.get(style, curses.A_NORMAL) for style in Style}
    # Only a terminal with this capability can return to its own colours.
    if os.environ.get("NO_COLOR") or not curses.has_colors() or not curses.tigetstr("op"):
        return found
    curses.start_color()
    curses.use_default_colors()
    for number, (style, colour) in enumerate(_COLOURS.items(), 1):
        curses.init_pair(number, colour, _DEFAULT)
        found[style] |= curses.color_pair(number)
    return found


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


def _loop(window: curses.window, poller: Poller, styles: Mapping[Style, int]) -> None:
    stdin_poll = select.poll()
    stdin_poll.register(sys.stdin.fileno(), 0)
    window.timeout(_WAIT_MS)
    with suppress(curses.error):
        curses.curs_set(0)
    state = State()
    drawn: object = None
    page = 1
    while True:
        height, width = window.getmaxyx()
        daemon = poller.daemon()
        if (daemon, state, width, height) != drawn:
            shown = frame(daemon, state, width, height)
            state, page = replace(state, offset=shown.offset), shown.page
            drawn = daemon, state, width, height
            _draw(window, shown, styles)
        key = _key(window)
        if key is None:
            # The terminal may be closed without SIGHUP, which nohup ignores.
            if stdin_poll.poll(0):
                return
            continue
        new_state = pressed(state, key, page)
        if new_state is None:
            return
        state = new_state


def _draw(window: curses.window, shown: Frame, styles: Mapping[Style, int]) -> None:
    window.erase()
    for at, line in enumerate(shown.lines):
        # curses raises an error when the cursor cannot move past the last character of the screen,
        # and when the terminal has become smaller in the meantime.
        with suppress(curses.error):
            window.move(at, 0)
            for span in line:
                window.addstr(written(span.text, window.encoding), styles[span.style])
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
