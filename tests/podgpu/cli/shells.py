"""Real shells that complete a command line, as a user types it."""

import os
import pty
import re
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_LIMIT = 20.0
"""Seconds to wait for a shell."""

_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|[()][A-Z0-9]|[=>])|[\x08\r\x07]")

# `podgpu` prints its arguments, so that the output shows what the shell completed.
_SETUP = {
    "bash": """
PS1= PS2=
bind 'set enable-bracketed-paste off'; bind 'set bell-style none'
podgpu() { printf '<%s>' "$@"; echo .; }
source SCRIPT
echo rea''dy
""",
    "zsh": """
PS1= PS2= PROMPT_EOL_MARK= ; unsetopt zle_bracketed_paste; unset zle_bracketed_paste; setopt no_beep
fpath+=(FOLDER); autoload -Uz compinit; compinit -u -D
podgpu() { printf '<%s>' "$@"; echo . }
echo rea''dy
""",
}
_START = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"]}


class Shell:
    """An interactive shell on a terminal."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self._text = ""

    def send(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def wait(self, pattern: str) -> str:
        """Wait until the output matches a pattern; return the first group, and drop the output."""
        deadline = time.monotonic() + _LIMIT
        while not (found := re.search(pattern, self._text)):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._terminal], [], [], left)[0]:
                raise TimeoutError(f"no {pattern} in {self._text!r}")
            read = os.read(self._terminal, 1 << 16).decode(errors="replace")
            self._text = _ESCAPES.sub("", self._text + read)
        self._text = self._text[found.end() :]
        return found[1]

    def arguments(self, typed: str) -> list[str]:
        """Type a line and the tab key; return the arguments of `podgpu` that result."""
        self.send(f"{typed}\t\n")
        return re.findall("<([^>]*)>", self.wait(r"((?:<[^<>]*>)+)\."))


@contextmanager
def interactive(name: str, script: Path, folder: Path) -> Iterator[Shell]:
    """Start bash or zsh in a folder. zsh finds the completion script by its name, `_podgpu`."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        _START[name],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "TERM": "dumb", "HOME": str(folder), "LC_ALL": "C.UTF-8"},
        stdin=child,
        stdout=child,
        stderr=child,
        start_new_session=True,
    )
    os.close(child)
    try:
        shell = Shell(parent)
        setup = _SETUP[name].replace("SCRIPT", str(script))
        shell.send(setup.replace("FOLDER", str(script.parent)))
        shell.wait("(ready)")
        yield shell
    finally:
        process.kill()
        process.wait()
        os.close(parent)


def fish_candidates(script: Path, folder: Path, lines: list[str]) -> list[list[str]]:
    """Return what fish offers for each line."""
    end = "=end="
    asked = "\n".join(f"complete -C '{line}'; echo {end}" for line in lines)
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source {script}\n{asked}"],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == ""
    found = [part.strip("\n").splitlines() for part in done.stdout.split(f"{end}\n")[:-1]]
    return [[line.split("\t")[0] for line in part] for part in found]


def required(name: str) -> None:
    """Skip the test if a shell is not installed."""
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
