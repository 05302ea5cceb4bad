"""A podgpu process with its configuration and its metrics page."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.node import PODGPU
from tests.e2e.processes import Answer, Process, free_ports, get, wait_until
from tests.fakes.nvml import FakeNvml, Scenario

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]
"""Values by name and labels."""


def page(port: int) -> Series:
    answer = get(port, "/metrics")
    assert answer.status == 200
    return series(answer)


def series(answer: Answer) -> Series:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


class Program:
    """A podgpu program that listens on a port of loopback.

    Args:
        folder: existing folder for its files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (self.port,) = free_ports(1)
        self.env: Mapping[str, str] = {}
        self.process: Process | None = None

    # For subclasses.

    def command(self) -> list[str | Path]:
        raise NotImplementedError

    # Its run.

    def launch(self) -> None:
        """Start it and wait until it is alive and has a metrics page."""
        self.process = Process(self.command(), self.folder / "podgpu.log", self.env)
        for path in ("/healthz", "/metrics"):
            self.process.wait_for_answer(self.port, path)

    def start(self) -> None:
        """Start it and wait until it is ready."""
        self.launch()
        assert self.process is not None
        self.process.wait_for_answer(self.port, "/readyz")

    def stop(self) -> int:
        assert self.process is not None
        return self.process.stop()

    def output(self) -> str:
        return self.process.output() if self.process is not None else ""

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Run it, and assert that it stops with status 0 unless the test has failed."""
        try:
            self.start()
            yield self
            assert self.stop() == 0
        finally:
            if self.process is not None:
                self.process.stop()
            # pytest shows it if the test has failed.
            print(self.output()[-5000:])

    # Its page.

    def page(self) -> Series:
        return page(self.port)

    def of(self, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
        """Return the samples of a metric that have these labels."""
        wanted = labels.items()
        return [
            (dict(pairs), value)
            for (found, pairs), value in self.page().items()
            if found == name and wanted <= dict(pairs).items()
        ]

    def value(self, name: str, **labels: str) -> float | None:
        """Return the value of the only sample with these labels; None if there is none."""
        found = self.of(name, **labels)
        assert len(found) < 2, found
        return found[0][1] if found else None

    def wait_value(self, name: str, *accepted: float, **labels: str) -> None:
        """Wait until the only sample with these labels has one of these values.

        Effects such as a patched object may be visible before podgpu counts them.
        """
        try:
            wait_until(lambda: self.value(name, **labels) in accepted, name)
        except AssertionError:
            raise AssertionError(
                f"{name} {labels}: {accepted} wanted, {self.value(name, **labels)} found"
            ) from None

    def stays(self, condition: Callable[[], bool], seconds: float) -> None:
        """Assert that a condition stays true for some time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert condition()
            time.sleep(0.1)


class Podgpu(Program):
    """The daemon with simulated GPUs.

    Args:
        folder: existing folder for its files.
        scenario: the simulated GPUs; None to use the GPUs of the machine.

    Attributes:
        fake: the fake NVML; None without a scenario.
    """

    def __init__(self, folder: Path, scenario: Scenario | None) -> None:
        super().__init__(folder)
        self.fake = FakeNvml(scenario, folder) if scenario else None
        self.env = self.fake.env() if self.fake else {}
        self.config = folder / "podgpu.yaml"

    def configure(
        self, node: str, sources: Mapping[str, object], sinks: Mapping[str, object]
    ) -> None:
        """Write a configuration with these sources and sinks, and a metrics page."""
        metrics = {"kind": "prometheus", "listen": f"127.0.0.1:{self.port}"}
        self.config.write_text(
            yaml.safe_dump(
                {"node": node, "sources": {**sources}, "sinks": {"metrics": metrics, **sinks}},
                sort_keys=False,
            )
        )

    def command(self) -> list[str | Path]:
        return [PODGPU, "run", "-c", self.config]

    def topology(self) -> dict[str, Any]:
        """Return the document of `/topology`."""
        answer = get(self.port, "/topology")
        assert answer.status == 200, answer
        document: dict[str, Any] = json.loads(answer.body)
        return document
