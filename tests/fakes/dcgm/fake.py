"""The fake DCGM library in this process, and the scenario that it plays."""

import ctypes
import os
from pathlib import Path

from tests.fakes.dcgm.build import build
from tests.fakes.dcgm.scenario import Scenario


class FakeDcgm:
    """A scenario file, and control of the library while it plays it."""

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self.library = build()
        self._path = folder / "dcgm.txt"
        self._calls = folder / "dcgm.txt.calls"
        self._dll = ctypes.CDLL(str(self.library))
        self._dll.fakedcgm_size.restype = ctypes.c_size_t
        self.set(scenario)
        self._dll.fakedcgm_use(os.fsencode(self._path))

    def set(self, scenario: Scenario) -> None:
        """Play this scenario from the next call on. Calls that hang follow it too."""
        self.scenario = scenario
        partial = self._path.with_suffix(".new")
        partial.write_text("".join(f"{line}\n" for line in scenario.lines()))
        partial.replace(self._path)

    def calls(self) -> list[str]:
        """Return all calls so far."""
        return self._calls.read_text().splitlines() if self._calls.exists() else []

    @property
    def inits(self) -> int:
        """How often the library was initialised without being shut down."""
        return int(self._dll.fakedcgm_inits())

    def size(self, name: str) -> int:
        """Return the size of a structure as the C compiler lays it out."""
        return int(self._dll.fakedcgm_size(name.encode()))
