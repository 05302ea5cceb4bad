"""Compare profiling fields and statistics with a second reading of the same GPUs.

`second_reader.py` takes the second reading: in another process, with pynvml, at other times.
"""

import itertools
import json
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from sources.nvml.gpm import METRICS
from tests.gpu.daemon import Daemon, samples

HERE = Path(__file__).parent
MIB = 1 << 20

# podgpu's rates, and the counters that they may be derived from: data only, or whole packets.
RATES = {
    "nvlink_transmit_bytes_per_second": ("nvlink_data_sent_kib", "nvlink_raw_sent_kib"),
    "nvlink_receive_bytes_per_second": ("nvlink_data_received_kib", "nvlink_raw_received_kib"),
    "pcie_transmit_bytes_per_second": ("pcie_sent_32_bits",),
    "pcie_receive_bytes_per_second": ("pcie_received_32_bits",),
}


def _second(seconds: float, interval: float = 1.0) -> "subprocess.Popen[str]":
    command = [sys.executable, str(HERE / "second_reader.py"), str(seconds), str(interval)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _second_readings(second: "subprocess.Popen[str]") -> dict[str, list[dict[str, Any]]]:
    """Return the output of the second reader by uuid."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    text, _ = second.communicate(timeout=600)
    for line in text.splitlines():
        one = json.loads(line)
        found[one["uuid"]].append(one)
    return found


def _lines(daemon: Daemon, start: float, end: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the uuid and the readings of each JSON line of a device in that time."""
    for text in daemon.lines.read_text().splitlines():
        line = json.loads(text)
        if line["record"] != "device":
            continue
        if start <= datetime.fromisoformat(line["time"]).timestamp() <= end:
            yield line["device"]["uuid"], line["readings"]


def _difference(ours: list[float], theirs: list[float]) -> dict[str, Any]:
    """Compare two means; the deviation of single windows is the noise."""
    a, b = statistics.mean(ours), statistics.mean(theirs)
    largest = max(abs(a), abs(b))
    return {
        "windows": [len(ours), len(theirs)],
        "podgpu": a,
        "second": b,
        "apart_percent": round(100 * abs(a - b) / largest, 2) if largest else 0.0,
        "noise_percent": round(100 * statistics.pstdev(theirs) / abs(b), 2) if b else 0.0,
    }


def profiling(folder: Path, seconds: float) -> dict[str, object]:
    """Read all metrics under the running load, and compare both readings by GPU and metric."""
    ours: dict[tuple[str, str], list[float]] = defaultdict(list)
    with Daemon(folder, also="profiling") as daemon:
        time.sleep(3)
        second = _second(seconds, 0.97)  # an interval that is mostly not in step with podgpu's
        theirs = _second_readings(second)
        time.sleep(1.5)
        starts = [readings[0]["from"] for readings in theirs.values()]
        ends = [readings[-1]["to"] for readings in theirs.values()]
        for uuid, readings in _lines(daemon, min(starts), max(ends)):
            for name in METRICS.keys() & readings.keys():
                ours[uuid, name].append(readings[name])
    report: dict[str, object] = {}
    worst = 0.0
    for uuid, second_readings in theirs.items():
        metrics: dict[str, Any] = {}
        for name, known in METRICS.items():
            # JSON keys are text.
            values = [one["gpm"].get(str(known.number)) for one in second_readings]
            given = [value * known.factor for value in values if value is not None]
            if ours[uuid, name] and given:
                metrics[name] = _difference(ours[uuid, name], given)
                if statistics.mean(given) > 0.005 * known.max_value:
                    worst = max(worst, metrics[name]["apart_percent"])
            elif ours[uuid, name] or given:
                metrics[name] = {"podgpu": len(ours[uuid, name]), "second": len(given)}
        report[uuid] = {"metrics": metrics, "rates": _rates(second_readings, ours, uuid)}
    report["worst_apart_percent_of_ratios"] = worst
    return report


def _rates(
    readings: list[dict[str, Any]], ours: dict[tuple[str, str], list[float]], uuid: str
) -> dict[str, Any]:
    """Compare rates with the growth of the driver's counters."""
    found: dict[str, Any] = {}
    seconds = readings[-1]["to"] - readings[0]["to"]
    for name, counters in RATES.items():
        for counter in counters:
            values = [one["counters"].get(counter) for one in readings]
            if None in values or not ours[uuid, name]:
                continue
            if counter.endswith("32_bits"):
                # Correct if less than 4 GiB are transferred between two readings.
                steps = itertools.pairwise(values)
                grown = sum((after - before) % (1 << 32) for before, after in steps)
            else:
                grown = (values[-1] - values[0]) * 1024
            found[f"{name} by {counter}"] = {
                "podgpu": statistics.mean(ours[uuid, name]),
                "counters": grown / seconds,
            }
    return found


def bursts(
    folder: Path, length: float = 0.15, every: float = 5.0, seconds: float = 60
) -> dict[str, object]:
    """Check that the maximum of a window shows short work on an idle GPU."""
    load = [sys.executable, str(HERE / "load.py"), "burst", str(seconds + 30), "0"]
    load += [str(length), str(every)]
    with Daemon(folder, interval="5s", also="statistics", window="5s") as daemon:
        time.sleep(6)  # a round, and the next
        uuid = min(
            (line.split('UUID="')[1].split('"')[0], line)
            for line in daemon.page().splitlines()
            if line.startswith("DCGM_FI_DEV_GPU_UTIL{") and 'gpu="0"' in line
        )[0]
        idle = _look(daemon, uuid)
        busy = subprocess.Popen(load)
        try:
            time.sleep(20)  # the first use of CUDA
            second = _second(seconds, 0.5)
            looks = [
                _after(every, lambda: _look(daemon, uuid)) for _ in range(int(seconds / every))
            ]
            truth = _second_readings(second)[uuid]
        finally:
            busy.kill()
            busy.wait()
    peaks = {
        name: max(value for one in truth for _, value in one["rings"][name])
        for name in ("power", "gpu_utilization")
    }
    return {
        "length_seconds": length,
        "idle": idle,
        "looks": looks,
        "least_power_max": min(look["power_max"] for look in looks),
        "most_power_now": max(look["power_now"] for look in looks),
        "peak_power_in_the_ring": peaks["power"] / 1000,
        "looks_with_utilization": sum(look["utilization_max"] > 0 for look in looks),
        "looks_with_utilization_now": sum(look["utilization_now"] > 0 for look in looks),
        "peak_utilization_in_the_ring": peaks["gpu_utilization"],
    }


def _after(seconds: float, look: Callable[[], dict[str, float]]) -> dict[str, float]:
    time.sleep(seconds)
    return look()


def _look(daemon: Daemon, uuid: str) -> dict[str, float]:
    page = daemon.page()
    names = {
        "power_now": "DCGM_FI_DEV_POWER_USAGE",
        "power_min": "podgpu_power_min_watts",
        "power_mean": "podgpu_power_mean_watts",
        "power_max": "podgpu_power_max_watts",
        "utilization_now": "DCGM_FI_DEV_GPU_UTIL",
        "utilization_mean": "podgpu_gpu_utilization_mean_percent",
        "utilization_max": "podgpu_gpu_utilization_max_percent",
    }
    return {name: samples(page, metric)[uuid] for name, metric in names.items()}
