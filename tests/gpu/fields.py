"""Run podgpu with dcgm-exporter's command line and every row of the built-in counters files.

    python3 -m tests.gpu.fields --out DIR [--seconds 20]

This includes rows that are commented out. Prints a JSON report for each file: which rows have
series on this machine under load, on how many GPUs, their range of values and whether it is
plausible, and which rows have no series.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from http.client import HTTPConnection
from importlib.resources import files
from pathlib import Path
from typing import Final

PORT: Final = 19401
ROW: Final = re.compile(r"#? ?(DCGM_\w+) ?, ?(gauge|counter|label)\s*,")

PLAUSIBLE: Final[dict[str, tuple[float, float]]] = {
    # Of a GPU that computes and reduces over NVLink; other fields may have any value from 0.
    "DCGM_FI_DEV_SM_CLOCK": (500, 2500),
    "DCGM_FI_DEV_MEM_CLOCK": (800, 5000),
    "DCGM_FI_DEV_MEMORY_TEMP": (25, 105),
    "DCGM_FI_DEV_GPU_TEMP": (25, 95),
    "DCGM_FI_DEV_POWER_USAGE": (100, 800),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": (1e4, 1e15),
    "DCGM_FI_DEV_GPU_UTIL": (30, 100),
    "DCGM_FI_DEV_MEM_COPY_UTIL": (1, 100),
    "DCGM_FI_DEV_ENC_UTIL": (0, 0),
    "DCGM_FI_DEV_DEC_UTIL": (0, 0),
    "DCGM_FI_DEV_FB_FREE": (1e3, 300e3),
    "DCGM_FI_DEV_FB_USED": (500, 300e3),
    "DCGM_FI_DEV_FB_RESERVED": (100, 5e3),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": (0, 1),
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS": (0, 1),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": (0.3, 1),
    "DCGM_FI_PROF_SM_ACTIVE": (0.1, 1),
    "DCGM_FI_PROF_SM_OCCUPANCY": (0.01, 1),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": (0.05, 1),
    "DCGM_FI_PROF_DRAM_ACTIVE": (0.01, 1),
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE": (0, 0.2),
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": (0, 0.5),
    "DCGM_FI_PROF_PIPE_FP16_ACTIVE": (0, 0.5),
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": (1e2, 1e6),
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_L0": (1, 1e5),
    "DCGM_EXP_P2P_STATUS": (0, 6),
}
ANYTHING: Final = (0, 1e18)


def everything(name: str) -> tuple[str, dict[str, str]]:
    """Return a counters file with all rows active, and the types of its rows by name."""
    text = files("config.counters").joinpath(name).read_text(encoding="utf-8")
    asked: dict[str, str] = {}
    lines = text.splitlines()
    for commented in (False, True):  # rows that are not commented out have precedence
        for line in lines:
            found = ROW.match(line)
            if found and line.startswith("#") is commented:
                asked.setdefault(found[1], found[2])
    return "".join(f"{row}, {kind}, {row}\n" for row, kind in asked.items()), asked


def page() -> str:
    connection = HTTPConnection("127.0.0.1", PORT, timeout=10)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def series(text: str, row: str) -> list[tuple[str, float]]:
    """Return the labels and values of a metric."""
    found = re.findall(rf"^{row}\{{(.*)\}} (\S+)$", text, re.MULTILINE)
    return [(labels, float(value)) for labels, value in found]


def summary(pages: list[str], row: str, kind: str) -> dict[str, object] | str:
    """Summarize the values of a row on the pages."""
    last = pages[-1]
    if kind == "label":
        values = sorted(set(re.findall(rf'[{{,]{row}="([^"]*)"', last)))
        return {"label": values} if any(values) else "none"
    values = [value for text in pages for _, value in series(text, row)]
    if not values:
        return "none"
    low, high = PLAUSIBLE.get(row, ANYTHING)
    gpus = {re.findall(r'gpu="(\d+)"', labels)[0] for labels, _ in series(last, row)}
    return {
        "gpus": len(gpus),
        "series": len(series(last, row)),
        "least": min(values),
        "most": max(values),
        "plausible": all(low <= value <= high for value in values),
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=int, default=20)
    arguments = parser.parse_args()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    load = Path(__file__).with_name("load.py")
    busy = subprocess.Popen([sys.executable, str(load), "nccl", str(3 * arguments.seconds + 40)])
    time.sleep(20)
    for name in ("default-counters.csv", "dcp-metrics-included.csv"):
        text, asked = everything(name)
        (out / name).write_text(text)
        command = [sys.executable, "-m", "podgpu", "dcgm-exporter", "-f", str(out / name)]
        command += ["-a", f"127.0.0.1:{PORT}", "-c", "1000"]
        with (out / f"{name}.log").open("wb") as log:
            daemon = subprocess.Popen(command, stderr=log)
        time.sleep(5)
        pages = []
        for _ in range(arguments.seconds):
            pages.append(page())
            time.sleep(1)
        (out / f"{name}.page.txt").write_text(pages[-1])
        report = {row: summary(pages, row, kind) for row, kind in asked.items()}
        errors = re.findall(r"^podgpu_sample_errors_total.*", pages[-1], re.MULTILINE)
        daemon.terminate()
        lines = {"file": name, "status": daemon.wait(15), "errors": errors, "rows": report}
        (out / f"{name}.json").write_text(json.dumps(lines, indent=1))
        print(json.dumps(lines), flush=True)
    busy.terminate()
    busy.wait(20)
    return 0


if __name__ == "__main__":
    sys.exit(main())
