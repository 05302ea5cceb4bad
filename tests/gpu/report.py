"""The figures of a run on a GPU machine, as a file of JSON."""

import json
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Report:
    """dict[str, Any] by name, written after each addition."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.figures: dict[str, Any] = {}
        self.wrong: list[str] = []

    def add(self, name: str, work: Callable[[], dict[str, Any]]) -> None:
        """Run a step and add its figures; record an exception and continue."""
        began = time.monotonic()
        try:
            found = work()
        except Exception:  # noqa: BLE001 - it is recorded
            self.wrong.append(name)
            found = {"wrong": traceback.format_exc()}
        self.figures[name] = {**found, "took_seconds": round(time.monotonic() - began, 1)}
        self._file.write_text(json.dumps(self.figures, indent=1))
        shown = "WRONG\n" + found["wrong"] if "wrong" in found else json.dumps(found)
        print(f"{name}: {shown}", flush=True)

    def conclude(self) -> int:
        """Print the faults of all steps; return the exit status."""
        faults = [
            f"{name}: {fault}"
            for name, figures in self.figures.items()
            for fault in figures.get("faults", [])
        ]
        faults += [f"{name}: the step failed" for name in self.wrong]
        print("wrong:", "; ".join(faults) or "nothing")
        return 1 if faults else 0
