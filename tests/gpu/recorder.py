"""Run `podgpu record` on a machine with GPUs."""

import subprocess
import sys
from pathlib import Path

GROUPS = ("profiling", "statistics", "links", "health", "limits")
"""Groups of fields that are recorded besides the default ones."""


def record(configured: Path, output: Path, seconds: float) -> None:
    words = ["record", "-f", "-c", str(configured), "-o", str(output), "--for", f"{seconds:g}s"]
    with output.with_suffix(".log").open("wb") as log:
        subprocess.run(
            [sys.executable, "-m", "podgpu", *words],
            check=True,
            stderr=log,
            timeout=seconds + 120,
        )
    print(f"recorded {output}: {output.stat().st_size} bytes", flush=True)
