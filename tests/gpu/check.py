"""Compare podgpu with other readings on a machine with GPUs: values, profiling, latency, cost.

    python3 -m tests.gpu.check --out DIR --floor PROGRAM [--seconds 60]

Prints and writes one JSON report. PROGRAM is tests/bench/floor.c, built. Needs torch for the load.
"""

import argparse
import json
import signal
import statistics
import subprocess
import sys
import time
from http.client import HTTPConnection
from pathlib import Path

from tests.gpu.cost import floor_then_podgpu
from tests.gpu.daemon import PORT, Daemon, samples
from tests.gpu.profiling import bursts, profiling

SMI = {
    "DCGM_FI_DEV_GPU_UTIL": "utilization.gpu",
    "DCGM_FI_DEV_MEM_COPY_UTIL": "utilization.memory",
    "DCGM_FI_DEV_FB_USED": "memory.used",
    "DCGM_FI_DEV_FB_FREE": "memory.free",
    "DCGM_FI_DEV_FB_TOTAL": "memory.total",
    "DCGM_FI_DEV_FB_RESERVED": "memory.reserved",
    "DCGM_FI_DEV_GPU_TEMP": "temperature.gpu",
    "DCGM_FI_DEV_MEMORY_TEMP": "temperature.memory",
    "DCGM_FI_DEV_POWER_USAGE": "power.draw",
    "DCGM_FI_DEV_SM_CLOCK": "clocks.sm",
    "DCGM_FI_DEV_MEM_CLOCK": "clocks.mem",
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": "ecc.errors.corrected.volatile.total",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": "remapped_rows.uncorrectable",
}


def smi() -> dict[str, dict[str, float]]:
    """Return nvidia-smi's values by DCGM name and uuid."""
    out = subprocess.run(
        [
            "nvidia-smi",
            f"--query-gpu=uuid,{','.join(SMI.values())}",
            "--format=csv,noheader,nounits",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found: dict[str, dict[str, float]] = {name: {} for name in SMI}
    for line in out.strip().splitlines():
        uuid, *values = (cell.strip() for cell in line.split(","))
        for name, value in zip(SMI, values, strict=True):
            try:
                found[name][uuid] = float(value)
            except ValueError:
                continue
    return found


def values(daemon: Daemon, rounds: int = 15) -> dict[str, object]:
    """Compare pages with nvidia-smi before and after each; the drift of nvidia-smi is the noise."""
    report: dict[str, object] = {}
    differences: dict[str, list[float]] = {name: [] for name in SMI}
    noise: dict[str, list[float]] = {name: [] for name in SMI}
    compared = dict.fromkeys(SMI, 0)
    for _ in range(rounds):
        before, page, after = smi(), daemon.page(), smi()
        for name in SMI:
            ours = samples(page, name)
            for uuid in before[name]:
                if uuid not in ours:
                    continue
                low, high = sorted((before[name][uuid], after[name][uuid]))
                compared[name] += 1
                noise[name].append(high - low)
                differences[name].append(max(0.0, low - ours[uuid], ours[uuid] - high))
        time.sleep(0.37)
    for name in SMI:
        if compared[name]:
            report[name] = {
                "compared": compared[name],
                "inside_or_equal": sum(d == 0 for d in differences[name]),
                "median_outside": statistics.median(differences[name]),
                "max_outside": max(differences[name]),
                "smi_max_drift": max(noise[name]),
            }
        else:
            report[name] = "nvidia-smi or podgpu gives no value"
    return report


def latency(daemon: Daemon, uuids: list[str], edits: int = 300) -> dict[str, float]:
    """Edit podlist.json repeatedly, and measure the time until the page shows the new pod."""
    connection = HTTPConnection("127.0.0.1", PORT, timeout=10)
    times: list[float] = []
    for turn in range(edits):
        pod = f"edit-{turn}"
        wanted = f'pod="{pod}"'.encode()
        start = time.perf_counter()
        daemon.hold({pod: [uuids[turn % len(uuids)]]})
        while True:
            connection.request("GET", "/metrics")
            if wanted in connection.getresponse().read():
                break
            if time.perf_counter() - start > 5:
                raise RuntimeError(f"{pod} is not on the page after 5 s")
        times.append(1e3 * (time.perf_counter() - start))
        time.sleep(0.013)
    times.sort()
    return {
        "edits": edits,
        "p50_ms": times[len(times) // 2],
        "p99_ms": times[int(len(times) * 0.99)],
        "max_ms": times[-1],
    }


def cost(folder: Path, floor: str, seconds: float) -> dict[str, object]:
    """Measure the CPU time of podgpu (1 Hz, a scrape each 15 s) and of the floor, alternately."""
    report: dict[str, object] = {}
    for name, lines, count in (("without_jsonl", False, 2), ("with_jsonl", True, 1)):
        turns = [
            floor_then_podgpu(Daemon(folder / name, lines=lines), floor, seconds)
            for _ in range(count)
        ]
        ratios = [turn["ratio"] for turn in turns]
        report[name] = {"turns": turns, "ratio": round(statistics.mean(ratios), 3)}
    return report


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--floor", required=True)
    parser.add_argument(
        "--seconds", type=float, default=60, help="of one measurement: a multiple of 30"
    )
    parser.add_argument("--cost-only", action="store_true")
    arguments = parser.parse_args()
    out: Path = arguments.out
    report: dict[str, object] = {}
    smi_list = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    report["gpus"] = smi_list.stdout.splitlines()

    def note(name: str, value: object) -> None:
        report[name] = value
        (out / "report.json").write_text(json.dumps(report, indent=1))
        print(name, json.dumps(value), flush=True)

    load = Path(__file__).with_name("load.py")
    if not arguments.cost_only:
        note("bursts", bursts(out / "bursts"))
    busy: subprocess.Popen[bytes] | None = None
    try:
        with Daemon(out / "a") as daemon:
            if not arguments.cost_only:
                note("values_idle", values(daemon))
            # Longer than all further steps; it is stopped after them.
            busy = subprocess.Popen([sys.executable, str(load), "nccl", "3600"])
            time.sleep(25)
            if not arguments.cost_only:
                note("values_busy", values(daemon))
                note("latency", latency(daemon, sorted(samples(daemon.page(), "podgpu_gpu_up"))))
                (out / "page_busy.txt").write_text(daemon.page())
        note("exit_status", daemon.exit_status)
        if not arguments.cost_only:
            note("profiling", profiling(out / "profiling", 45))
        note("cost", cost(out, arguments.floor, arguments.seconds))
    finally:
        if busy is not None:
            busy.send_signal(signal.SIGINT)
            try:
                busy.wait(20)
            except subprocess.TimeoutExpired:
                busy.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
