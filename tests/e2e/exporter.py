"""A podgpu that replaces dcgm-exporter, started by the image's entry point and scraped."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.node import FAST, PODGPU
from tests.e2e.processes import Process, get, wait_until
from tests.e2e.prometheus import Server
from tests.e2e.scrape_target import Scraped
from tests.fakes.nvml import FakeNvml, Scenario

_ROOT = Path(__file__).resolve().parents[2]
_ENTRY_POINT = _ROOT / "image" / "entrypoint"

COUNTERS = _ROOT / "config" / "counters" / "dcp-metrics-included.csv"
"""The image has this file at the path that dcgm-exporter uses."""

READING = {"gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname"}
"""Label names of a reading, as in dcgm-exporter."""


class Exporter(Scraped):
    """A container of dcgm-exporter that was changed to podgpu's image."""

    def __init__(self, server: Server, folder: Path, scenario: Scenario) -> None:
        super().__init__(server)
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.fake = FakeNvml(scenario, folder)
        self.address = f"127.0.0.1:{self.port}"
        self.process: Process | None = None
        self._programs = folder / "bin"
        self._programs.mkdir()
        (self._programs / "podgpu").symlink_to(PODGPU)
        for name in ("dcgm-exporter", "podgpu-entrypoint"):
            (self._programs / name).symlink_to(_ENTRY_POINT)

    def start(
        self,
        *words: str | Path,
        env: Mapping[str, str] | None = None,
        name: str = "dcgm-exporter",
        inside: Sequence[str | Path] = (),
    ) -> None:
        """Start it.

        Args:
            words: the `args` of a chart.
            env: variables in addition to address, interval and node.
            name: the entry point: a program of the image.
            inside: a command that starts it, such as `unshare`.
        """
        self.process = Process(
            [*inside, self._programs / name, *words],
            self.folder / "podgpu.log",
            {
                **self.fake.env(),
                "PATH": f"{self._programs}{os.pathsep}{os.environ['PATH']}",
                "DCGM_EXPORTER_LISTEN": self.address,
                "DCGM_EXPORTER_INTERVAL": f"{FAST * 1000:g}",
                "NODE_NAME": "gpu-node",
                **(env or {}),
            },
        )
        for path in ("/healthz", "/metrics"):
            self.process.wait_for_answer(self.port, path)

    def output(self) -> str:
        return self.process.output() if self.process is not None else ""

    def labels(self) -> dict[str, list[dict[str, str]]]:
        """Return the labels of each DCGM series on the page, by family."""
        answer = get(self.port, "/metrics")
        assert answer.status == 200, answer
        text = answer.body.decode()
        return {
            family.name: [dict(sample.labels) for sample in family.samples]
            for family in text_string_to_metric_families(text)
            if family.name.startswith("DCGM_")
        }

    def families(self) -> set[str]:
        return set(self.labels())

    def wait_families(self, expected: set[str]) -> None:
        """Wait until the page has exactly these DCGM families."""
        try:
            wait_until(lambda: self.families() == expected, "families")
        except AssertionError:
            more, less = self.families() - expected, expected - self.families()
            raise AssertionError(f"too many: {more}; missing: {less}; {self.output()}") from None


@contextmanager
def exporting(server: Server, folder: Path, scenario: Scenario) -> Iterator[Exporter]:
    """Prepare an exporter that the test starts, and stop it at the end."""
    exporter = Exporter(server, folder, scenario)
    try:
        yield exporter
        assert exporter.process is not None
        assert exporter.process.stop() == 0
    finally:
        if exporter.process is not None:
            exporter.process.stop()
        # pytest shows it if the test has failed.
        print(exporter.output()[-5000:])
