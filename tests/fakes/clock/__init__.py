"""A wall clock of its own for one program, to be set while that runs."""

import os
import struct
from pathlib import Path
from typing import Final

from tests.support.compiling import compiled

_NAME: Final = "libsetclock.so.1"
_FORMAT: Final = "<q"


class SetClock:
    """The clock of programs that are started with `env`; monotonic clocks stay as they are.

    Args:
        path: a file in which the offset stands.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.offset_ns = 0
        path.write_bytes(struct.pack(_FORMAT, 0))

    def env(self) -> dict[str, str]:
        """What a program needs in its environment."""
        source = Path(__file__).with_name("setclock.c")
        library = compiled("setclock", _NAME, [source])
        return {"LD_PRELOAD": str(library), "SETCLOCK_FILE": os.fspath(self._path)}

    def step(self, seconds: float) -> None:
        """Set the wall clock forward, or back."""
        self.offset_ns += round(seconds * 1e9)
        with self._path.open("r+b") as file:  # in place: it is mapped
            file.write(struct.pack(_FORMAT, self.offset_ns))
