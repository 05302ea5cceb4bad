"""A podgpu process on a machine with GPUs, and its CPU time and memory."""

import http.client
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

PORT = 19400

CONFIG = """\
node: gpu-node
sources:
  gpus: {{kind: nvml, interval: {interval}, slow_interval: 30s, statistics_window: {window}}}
  podlist: {{kind: podlist, path: {podlist}}}
sinks:
  metrics: {{kind: prometheus, listen: "127.0.0.1:{port}"}}
"""
ALSO = """\
counters: {{also: [{also}]}}
"""
LINES = """\
  lines: {{kind: jsonl, path: {lines}}}
"""


class Daemon:
    """Runs `podgpu run` in a folder.

    Args:
        folder: folder for its files.
        interval: interval of rounds.
        lines: whether it writes JSON lines.
        also: groups of fields in addition to the default ones.
        window: window of statistics.
        more: configuration of further sinks.
    """

    def __init__(
        self,
        folder: Path,
        interval: str = "1s",
        *,
        lines: bool = True,
        also: str = "",
        window: str = "15s",
        more: str = "",
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.podlist = folder / "podlist.json"
        self.lines = folder / "lines.jsonl"
        self.log = folder / "podgpu.log"
        self._config = folder / "podgpu.yaml"
        self._config.write_text(
            (ALSO * bool(also) + CONFIG + LINES * lines).format(
                also=also,
                interval=interval,
                window=window,
                podlist=self.podlist,
                port=PORT,
                lines=self.lines,
            )
            + more
        )
        self.hold({})

    def __enter__(self) -> Self:
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "podgpu", "run", "-c", str(self._config)], stderr=log
            )
        end = time.monotonic() + 30
        while True:
            try:
                if self.get("/readyz")[0] == 200:
                    return self
            except OSError:
                pass
            if time.monotonic() > end or self._process.poll() is not None:
                raise RuntimeError(f"podgpu is not ready: {self.log.read_text()[-2000:]}")
            time.sleep(0.05)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.send_signal(signal.SIGTERM)
        self.exit_status = self._process.wait(15)

    def get(self, path: str, headers: dict[str, str] | None = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=10)
        try:
            connection.request("GET", path, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def page(self) -> str:
        return self.get("/metrics")[1]

    def hold(self, held: dict[str, list[str]]) -> None:
        """Write podlist.json: device ids by pod name."""
        entries = [
            {"name": pod, "namespace": "ml", "container": "main", "gpu_list": ids}
            for pod, ids in held.items()
        ]
        new = self.podlist.with_suffix(".new")
        new.write_text(json.dumps(entries))
        new.replace(self.podlist)

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pid)

    def memory_mb(self) -> dict[str, float]:
        return memory_mb(self.pid)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads of a process, from the scheduler's accounts."""
    total = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9


def memory_mb(pid: int) -> dict[str, float]:
    """Return the resident memory of a process and its parts."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    wanted = ("Rss", "Pss", "Private_Dirty", "Anonymous", "AnonHugePages")
    found = {}
    for line in rollup.splitlines()[1:]:
        name, value = line.split(":")
        if name in wanted:
            found[name] = round(int(value.split()[0]) * 1024 / 1e6, 1)
    return found


def samples(page: str, metric: str) -> dict[str, float]:
    """Return the values of a metric by the label UUID."""
    found = {}
    for line in page.splitlines():
        if line.startswith(metric + "{"):
            labels, _, value = line[len(metric) + 1 :].rpartition("} ")
            uuid = labels.split('UUID="', 1)[1].split('"', 1)[0]
            found[uuid] = float(value)
    return found
