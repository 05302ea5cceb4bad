"""Read the same GPUs with pynvml, in a separate process.

    python3 second_reader.py SECONDS [INTERVAL]

Prints a line of JSON for each GPU and interval: GPM metrics by id between `from` and `to` (Unix
time), the counters of NVLink and PCIe at its end, and the driver's new samples of power and
utilisation.
"""

import json
import sys
import time
from typing import Any

import pynvml

GPM = (*range(1, 8), *range(9, 14), 20, 21, *range(30, 38), *range(40, 48), 50, 51, 60, 61)
ALL_LINKS = 0xFFFFFFFF
COUNTERS = {
    "nvlink_data_sent_kib": (138, ALL_LINKS),
    "nvlink_data_received_kib": (139, ALL_LINKS),
    "nvlink_raw_sent_kib": (140, ALL_LINKS),
    "nvlink_raw_received_kib": (141, ALL_LINKS),
    "pcie_sent_32_bits": (197, 0),
    "pcie_received_32_bits": (198, 0),
}
RINGS = {"power": 0, "gpu_utilization": 1}


class Card:
    """A GPU and its previous sample."""

    def __init__(self, index: int) -> None:
        self.handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        self.uuid = pynvml.nvmlDeviceGetUUID(self.handle)
        self.samples = [pynvml.nvmlGpmSampleAlloc() for _ in range(2)]
        self.newest = dict.fromkeys(RINGS, 0)
        self.at = 0.0
        self.look()

    def look(self) -> dict[str, Any]:
        """Take a sample, and return the changes since the previous one."""
        begun, self.at = self.at, time.time()
        self.samples.reverse()
        pynvml.nvmlGpmSampleGet(self.handle, self.samples[1])
        reading: dict[str, Any] = {"uuid": self.uuid, "from": begun, "to": self.at}
        if begun:
            reading["gpm"] = self.metrics()
        values = pynvml.nvmlDeviceGetFieldValues(self.handle, list(COUNTERS.values()))
        reading["counters"] = {
            name: value.value.uiVal if value.valueType == 1 else value.value.ullVal
            for name, value in zip(COUNTERS, values, strict=True)
            if value.nvmlReturn == 0
        }
        reading["rings"] = {name: self.ring(name, kind) for name, kind in RINGS.items()}
        return reading

    def metrics(self) -> dict[int, float]:
        asked = pynvml.c_nvmlGpmMetricsGet_t()
        asked.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = len(GPM)
        asked.sample1, asked.sample2 = self.samples
        for place, number in enumerate(GPM):
            asked.metrics[place].metricId = number
        pynvml.nvmlGpmMetricsGet(asked)
        answers = (asked.metrics[place] for place in range(len(GPM)))
        return {one.metricId: one.value for one in answers if one.nvmlReturn == 0}

    def ring(self, name: str, kind: int) -> list[tuple[int, int]]:
        try:
            _, samples = pynvml.nvmlDeviceGetSamples(self.handle, kind, self.newest[name])
        except pynvml.NVMLError:
            return []
        fresh = [(s.timeStamp, s.sampleValue.uiVal) for s in samples]
        self.newest[name] = max((stamp for stamp, _ in fresh), default=self.newest[name])
        return fresh


def main() -> None:
    seconds = float(sys.argv[1])
    interval = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    pynvml.nvmlInit()
    cards = [Card(index) for index in range(pynvml.nvmlDeviceGetCount())]
    start = due = time.monotonic()
    while due < start + seconds:
        due += interval
        time.sleep(max(0.0, due - time.monotonic()))
        for card in cards:
            print(json.dumps(card.look()), flush=True)


if __name__ == "__main__":
    main()
