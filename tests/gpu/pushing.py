"""Compare points that a real Collector received, also over an outage, with the readings.

    python -m tests.gpu.pushing --out DIR

The JSON lines of the same run are the reference. Needs the Collector of `make peers`.
"""

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.e2e.collector import Collector
from tests.e2e.points import Point
from tests.gpu.daemon import Daemon, samples

LOAD = Path(__file__).with_name("load.py")
SINK = """\
  otlp: {{kind: otlp, endpoint: "{endpoint}", protocol: "{protocol}", queue: {{path: {queue}}}}}
"""


@dataclass(frozen=True)
class OtlpName:
    """The OTLP metric of a field, an attribute, and the factor of its value."""

    metric: str
    attribute: tuple[str, str] | None = None
    factor: float = 1


OTLP_NAMES = {
    "power_watts": OtlpName("hw.power"),
    "energy_millijoules": OtlpName("hw.energy", None, 1e-3),
    "gpu_temperature_celsius": OtlpName("hw.temperature", ("hw.sensor_location", "gpu")),
    "gpu_utilization_percent": OtlpName("hw.gpu.utilization", ("hw.gpu.task", "general"), 1e-2),
    "memory_used_bytes": OtlpName("hw.gpu.memory.usage"),
    "memory_total_bytes": OtlpName("hw.gpu.memory.limit"),
    "sm_clock_mhz": OtlpName("dcgm.sm_clock"),
    "tensor_active_ratio": OtlpName("dcgm.prof.pipe_tensor_active"),
    "pcie_transmitted_bytes": OtlpName("hw.gpu.io", ("network.io.direction", "transmit")),
    "pcie_replays": OtlpName("hw.errors", ("error.type", "pcie_replay")),
    "ecc_corrected_volatile": OtlpName("hw.errors", ("error.type", "corrected")),
}


def truth(file: Path) -> Iterator[tuple[str, int, str, float, str]]:
    """Yield device, time in microseconds, field, value and pod of the JSON lines."""
    for line in file.read_text().splitlines():
        record = json.loads(line)
        if record["record"] != "device":
            continue
        moment = datetime.fromisoformat(record["time"])
        micros = int(moment.timestamp()) * 1_000_000 + moment.microsecond
        (pod,) = {holder["pod"] for holder in record["holders"]} or {""}
        for field, value in record["readings"].items():
            if field in OTLP_NAMES:
                yield record["device"]["uuid"], micros, field, value, pod


def found(points: list[Point]) -> dict[tuple[str, str], list[Point]]:
    """Return points by device and field."""
    by: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        for field, name in OTLP_NAMES.items():
            attribute = name.attribute
            if point.name == name.metric and (
                attribute is None or point.attributes.get(attribute[0]) == attribute[1]
            ):
                by.setdefault((point.attributes["hw.id"], field), []).append(point)
    return by


def compare(lines: Path, points: list[Point]) -> dict[str, Any]:
    """Search each reading among the points."""
    by = found([point for point in points if not point.ended])
    counts: Counter[str] = Counter()
    for device, micros, field, value, pod in truth(lines):
        counts["readings"] += 1
        wanted = value * OTLP_NAMES[field].factor
        near = [
            point
            for point in by.get((device, field), ())
            # A line has the time of its newest reading, by the wall clock of that time.
            if -300_000 <= point.time_ns // 1000 - micros <= 20_000
        ]
        if not near:
            counts["missing"] += 1
        elif not any(abs((point.value or 0) - wanted) <= 1e-9 * abs(wanted) for point in near):
            counts["different"] += 1
        elif pod not in {point.resource.get("k8s.pod.name", "") for point in near}:
            counts["other pod"] += 1
        else:
            counts["equal"] += 1
    return dict(counts)


def accounts(page: str) -> dict[str, float]:
    """Return the sums of podgpu's metrics of the sink."""
    sums: dict[str, float] = {}
    apart = ("queue_full", "stopped", "not_finite", "doubled")
    for line in page.splitlines():
        if line.startswith("podgpu_sink_") and 'sink="otlp"' in line:
            name, _, value = line.partition("{")[0], None, line.rpartition(" ")[2]
            if not any(f'reason="{reason}"' in line for reason in apart):
                sums[name] = sums.get(name, 0) + float(value)
    return sums


def run(out: Path, protocol: str, seconds: int) -> dict[str, Any]:
    """Run podgpu with an outage in the middle."""
    folder = out / protocol.replace("/", "-")
    collector = Collector(folder / "collector")
    collector.start()
    sink = SINK.format(endpoint=collector.url(protocol), protocol=protocol, queue=folder / "queue")
    result: dict[str, Any] = {}
    with Daemon(folder, more=sink) as daemon:
        while not (uuids := sorted(samples(daemon.page(), "podgpu_gpu_up"))):
            time.sleep(0.1)
        begun, used = time.monotonic(), daemon.cpu_seconds()
        part = seconds / 4
        time.sleep(part)
        daemon.hold({"train": uuids[:1]})
        time.sleep(part)
        collector.kill()
        time.sleep(part / 2)
        daemon.hold({"serve": uuids[:1]})
        time.sleep(part / 2)
        result["outage"] = accounts(daemon.page())
        collector.start()
        time.sleep(part)
        result["cpu_percent"] = 100 * (daemon.cpu_seconds() - used) / (time.monotonic() - begun)
        result["memory_mb"] = daemon.memory_mb()["Rss"]
        result["end"] = accounts(daemon.page())
        result["log"] = [
            line for line in daemon.log.read_text().splitlines() if "sinks.otlp" in line
        ]
    collector.stop()
    points = collector.points()
    identities = [point.identity for point in points]
    result["points"] = len(points)
    result["twice"] = len(identities) - len(set(identities))
    result["ends"] = sum(point.ended for point in points)
    result["compared"] = compare(daemon.lines, points)
    result["pods"] = sorted({str(point.resource.get("k8s.pod.name", "")) for point in points})
    return result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=int, default=60)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    load = subprocess.Popen(
        [sys.executable, str(LOAD), "share", str(2 * args.seconds + 40), "0", "0.5"]
    )
    try:
        for protocol in ("grpc", "http/protobuf"):
            result = run(args.out, protocol, args.seconds)
            print(json.dumps({"protocol": protocol, **result}, indent=1), flush=True)
            bad = {k: v for k, v in result["compared"].items() if k not in ("readings", "equal")}
            assert not bad, bad
            end = result["end"]
            made = end["podgpu_sink_produced_total"] + end["podgpu_sink_recovered_total"]
            gone = sum(
                end.get(f"podgpu_sink_{name}", 0)
                for name in ("emitted_total", "rejected_total", "dropped_total", "queued")
            )
            assert made == gone, (made, gone)
    finally:
        load.kill()


if __name__ == "__main__":
    main()
