"""A wall clock for one program, which a test can set while the program runs."""

import os
import struct
from pathlib import Path
from typing import Final

from tests.support.compiling import compiled

_NAME: Final = "libsetclock.so.1"
_FORMAT: Final = "<q"


class SetClock:
    """The wall clock of programs that are started with `env`. Monotonic clocks do not change.

    Args:
        path: the file that holds the offset.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.offset_ns = 0
        path.write_bytes(struct.pack(_FORMAT, 0))

    def env(self) -> dict[str, str]:
        """Return the environment variables that a program needs."""
        source = Path(__file__).with_name("setclock.c")
        library = compiled("setclock", _NAME, [source])
        return {"LD_PRELOAD": str(library), "SETCLOCK_FILE": os.fspath(self._path)}

    def step(self, seconds: float) -> None:
        """Set the wall clock forward by `seconds`, or back if they are negative."""
        self.offset_ns += round(seconds * 1e9)
        with self._path.open("r+b") as file:  # in place, because the program maps the file
            file.write(struct.pack(_FORMAT, self.offset_ns))
