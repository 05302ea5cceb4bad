"""The fake NVML for pynvml in this process and for other processes."""

import ctypes
import os
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pynvml

from tests.fakes.nvml.build import SONAME, build
from tests.fakes.nvml.scenario import Scenario

XID: Final = 8  # nvmlEventTypeXidCriticalError

_library: ctypes.CDLL | None = None


def reset_pynvml() -> None:
    """Reset pynvml to its state after import: not loaded and not initialised."""
    pynvml.nvmlLib = None
    pynvml._nvmlLib_refcount = 0
    pynvml._nvmlGetFunctionPointer_cache.clear()


class FakeNvml:
    """A scenario file, and control of the library while it plays it."""

    def __init__(self, scenario: Scenario, tmp_path: Path) -> None:
        self.library_folder = build()
        self.path = tmp_path / "scenario.txt"
        self._events = tmp_path / "scenario.txt.events"
        self._call_log = tmp_path / "nvml-calls.log"
        # Kept over rewrites, so that growing counters do not decrease at a rewrite.
        self._t0 = time.monotonic()
        self.scenario = scenario
        self.set(scenario)

    def set(self, scenario: Scenario) -> None:
        """Play this scenario from the next call on. Blocked calls follow it too."""
        self.scenario = scenario
        if scenario.t0 is None:
            scenario = replace(scenario, t0=self._t0)
        scenario.write(self.path)

    def load_in_process(self) -> None:
        """Make pynvml's CDLL("libnvidia-ml.so.1") in this process find the fake.

        The loader compares that name with the SONAMEs of loaded libraries. A loaded library
        stays loaded, so later fakes of a process only point it to another file.
        """
        global _library
        if _library is None:
            _library = ctypes.CDLL(str(self.library_folder / SONAME), ctypes.RTLD_GLOBAL)
        _library.fakenvml_use(os.fsencode(self.path))

    def env(self) -> dict[str, str]:
        """Return the environment variables with which another process loads the fake."""
        folders = [str(self.library_folder), os.environ.get("LD_LIBRARY_PATH", "")]
        return {
            "LD_LIBRARY_PATH": os.pathsep.join(filter(None, folders)),
            "FAKENVML_SCENARIO": str(self.path),
            "FAKENVML_CALL_LOG": str(self._call_log),
        }

    def push_xid(
        self, gpu_index: int, xid: int, *, gi: int | None = None, ci: int | None = None
    ) -> None:
        """Send an XID event to all event sets that watch this GPU."""
        self.push_event(gpu_index, XID, xid, gi=gi, ci=ci)

    def push_event(
        self, gpu_index: int, kind: int, data: int, *, gi: int | None = None, ci: int | None = None
    ) -> None:
        """Send an event of any type, given by its nvmlEventType bit."""
        gi, ci = (-1 if number is None else number for number in (gi, ci))
        with self._events.open("a") as file:
            file.write(f"{gpu_index} {kind} {data} {gi} {ci}\n")

    def gpm_samples(self) -> tuple[int, int]:
        """Return how many GPM samples are allocated, and how often one was misused.

        A misuse is the use of a freed sample, or a comparison with a sample of another device.
        """
        assert _library is not None, "load_in_process() comes first"
        live, misused = ctypes.c_uint(), ctypes.c_uint()
        _library.fakenvml_gpm(ctypes.byref(live), ctypes.byref(misused))
        return live.value, misused.value

    def calls(self, *, reset: bool = False) -> dict[str, int]:
        """Return the number of calls by function in this process since the last reset."""
        assert _library is not None, "load_in_process() comes first"
        buffer = ctypes.create_string_buffer(1 << 16)
        _library.fakenvml_calls(buffer, ctypes.c_ulong(len(buffer)), int(reset))
        pairs = (line.split() for line in buffer.value.decode().splitlines())
        return {name: int(count) for name, count in pairs}

    def subprocess_calls(self) -> dict[str, int]:
        """Return the number of calls by function in all processes that were started with env()."""
        lines: Iterable[str] = ()
        if self._call_log.exists():
            lines = self._call_log.read_text().splitlines()
        return dict(Counter(lines))
