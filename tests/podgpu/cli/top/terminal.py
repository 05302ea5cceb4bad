"""A pseudo-terminal with a VT100 emulator, and podgpu as the program in it."""

import asyncio
import codecs
import fcntl
import os
import pty
import re
import signal
import struct
import sys
import termios
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType

_SEQUENCE = re.compile(r"\x1b(?:\[([?]?)([0-9;]*)([A-Za-z])|([()][0AB])|([=>78MDE]))")
_PLAIN = re.compile(r"[^\x00-\x1f\x7f]+")


class Vt100:
    """The screen of a VT100. An unknown control sequence is an error, so that none is ignored."""

    def __init__(self, width: int, height: int) -> None:
        self.resize(width, height)
        self._rest = ""

    def resize(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.rows = [[" "] * width for _ in range(height)]
        self._x = self._y = 0
        self._top, self._bottom = 0, height - 1

    @property
    def lines(self) -> list[str]:
        return ["".join(row).rstrip() for row in self.rows]

    def feed(self, text: str) -> None:
        text, at = self._rest + text, 0
        self._rest = ""
        while at < len(text):
            if text[at] == "\x1b":
                found = _SEQUENCE.match(text, at)
                if found is None:
                    assert len(text) - at < 16, f"unknown: {text[at : at + 16]!r}"
                    self._rest = text[at:]
                    return
                self._act(found)
                at = found.end()
            elif plain := _PLAIN.match(text, at):
                self._write(plain.group())
                at = plain.end()
            else:
                self._control(text[at])
                at += 1

    def _write(self, text: str) -> None:
        for character in text:
            if self._x == self.width:
                self._x = 0
                self._down()
            self.rows[self._y][self._x] = character
            self._x += 1

    def _control(self, character: str) -> None:
        if character == "\r":
            self._x = 0
        elif character == "\n":
            self._down()
        elif character == "\b":
            self._x = max(min(self._x, self.width - 1) - 1, 0)
        elif character == "\t":
            self._x = min((self._x // 8 + 1) * 8, self.width - 1)
        else:
            assert character in "\x00\x07\x0e\x0f", f"unknown: {character!r}"

    def _down(self) -> None:
        if self._y == self._bottom:
            del self.rows[self._top]
            self.rows.insert(self._bottom, [" "] * self.width)
        else:
            self._y = min(self._y + 1, self.height - 1)

    def _up(self) -> None:
        if self._y == self._top:
            del self.rows[self._bottom]
            self.rows.insert(self._top, [" "] * self.width)
        else:
            self._y = max(self._y - 1, 0)

    def _act(self, found: re.Match[str]) -> None:
        private, digits, final, _, single = found.groups()
        if single == "M":
            self._up()
        if single == "D":
            self._down()
        if final is None or private:
            return
        numbers = [int(n) if n else 0 for n in digits.split(";")] if digits else []
        first = numbers[0] if numbers else 0
        match final:
            case "H":
                row, column = numbers if len(numbers) > 1 else (first or 1, 1)
                self._y = min(max(row, 1), self.height) - 1
                self._x = min(max(column, 1), self.width) - 1
            case "A":
                self._y = max(self._y - max(first, 1), 0)
            case "B":
                self._y = min(self._y + max(first, 1), self.height - 1)
            case "C":
                self._x = min(self._x + max(first, 1), self.width - 1)
            case "D":
                self._x = max(self._x - max(first, 1), 0)
            case "J":
                assert first == 0
                self._clear(self._y, self._x)
                for row in range(self._y + 1, self.height):
                    self._clear(row, 0)
            case "K" if first == 1:
                self.rows[self._y][: self._x + 1] = [" "] * (self._x + 1)
            case "K":
                assert first == 0
                self._clear(self._y, self._x)
            case "r":
                self._top = (numbers[0] if numbers else 1) - 1
                self._bottom = (numbers[1] if len(numbers) > 1 else self.height) - 1
                self._x = self._y = 0
            case _:
                assert final in "mhl", f"unknown: {found.group()!r}"

    def _clear(self, row: int, start: int) -> None:
        self.rows[row][start:] = [" "] * (self.width - start)


class Session:
    """A running program and its terminal."""

    def __init__(
        self, master: int, process: asyncio.subprocess.Process, screen: Vt100 | None
    ) -> None:
        self._screen = screen
        self.process = process
        self.written = b""
        self._master = master
        self._changed = asyncio.Event()
        # A read can end within a character.
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        asyncio.get_running_loop().add_reader(master, self._read)

    @property
    def screen(self) -> Vt100:
        assert self._screen is not None, "only a vt100 has a screen"
        return self._screen

    @property
    def is_in_shell_mode(self) -> bool:
        """Whether the terminal shows what is typed, and passes it on by lines."""
        flags = termios.tcgetattr(self._master)[3]
        return bool(flags & termios.ECHO and flags & termios.ICANON)

    def hang_up(self) -> None:
        """Close the terminal, as if its window was closed."""
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)
        self._master = -1

    def end(self) -> None:
        if self._master >= 0:
            self.hang_up()

    def _read(self) -> None:
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:  # no process has the other side open any more
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._master)
        self.written += data
        if self._screen is not None:
            self._screen.feed(self._decoder.decode(data))
        self._changed.set()

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def resize(self, width: int, height: int) -> None:
        self.screen.resize(width, height)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    async def until(self, condition: Callable[[list[str]], bool]) -> list[str]:
        """Wait until the condition is true for the lines of the screen; return them."""
        try:
            async with asyncio.timeout(15):
                while not condition(self.screen.lines):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError("\n".join(self.screen.lines)) from None
        return self.screen.lines


@asynccontextmanager
async def running(
    *words: str,
    width: int = 80,
    height: int = 24,
    term: str = "vt100",
    env: Mapping[str, str] = MappingProxyType({}),
    ignores_hangup: bool = False,
) -> AsyncIterator[Session]:
    """Run podgpu in a terminal.

    Args:
        words: arguments of podgpu.
        width: columns.
        height: lines.
        term: the kind of terminal; only vt100 has a screen.
        env: additional environment variables.
        ignores_hangup: the program ignores SIGHUP, as under nohup.
    """
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
    inherited = {
        name: value for name, value in os.environ.items() if name not in {"LINES", "COLUMNS"}
    }
    ignoring = ("sh", "-c", 'trap "" HUP; exec "$@"', "sh") if ignores_hangup else ()
    # In a background job SIGINT is ignored, and child processes inherit that.
    default_sigint = ("env", "--default-signal=INT")
    process = await asyncio.create_subprocess_exec(
        *default_sigint, *ignoring, sys.executable, "-m", "podgpu", *words,
        stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        env={**inherited, "TERM": term, "LC_ALL": "C.UTF-8", **env},
    )  # fmt: skip
    os.close(slave)
    session = Session(master, process, Vt100(width, height) if term == "vt100" else None)
    try:
        yield session
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        session.end()
