"""A podgpu on a simulated node, scraped by a Prometheus."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from tests.e2e.processes import Answer, Process, get, wait_until
from tests.e2e.prometheus import Server
from tests.e2e.scrape_target import Scraped
from tests.fakes.nvml import FakeNvml, Scenario

PODGPU = Path(sys.executable).with_name("podgpu")

FAST = 0.5
SLOW = 1.0
"""Intervals of fast and slow fields, in seconds."""


@dataclass(frozen=True, slots=True)
class Settings:
    """podgpu's configuration."""

    port: int
    folder: Path
    node: str = "gpu-node"
    interval: str = f"{FAST * 1000:g}ms"
    slow_interval: str = f"{SLOW:g}s"
    paths: tuple[str, ...] = ("/metrics",)
    lines: bool = True
    more: Mapping[str, object] = field(default_factory=dict)

    @property
    def podlist(self) -> Path:
        return self.folder / "pods" / "podlist.json"

    @property
    def jsonl(self) -> Path:
        return self.folder / "lines.jsonl"

    def text(self) -> str:
        listen = f"127.0.0.1:{self.port}"
        sinks: dict[str, object] = {
            f"metrics{at or ''}": {"kind": "prometheus", "listen": listen, "path": path}
            for at, path in enumerate(self.paths)
        }
        if self.lines:
            sinks["lines"] = {"kind": "jsonl", "path": str(self.jsonl)}
        gpus = {"kind": "nvml", "interval": self.interval, "slow_interval": self.slow_interval}
        pods = {"kind": "podlist", "path": str(self.podlist)}
        return yaml.safe_dump(
            {
                "node": self.node,
                "sources": {"gpus": gpus, "podlist": pods},
                "sinks": sinks,
                **self.more,
            }
        )


class Node(Scraped):
    """A podgpu process with the fake NVML and a podlist.json, scraped by a Prometheus."""

    def __init__(self, server: Server, folder: Path, scenario: Scenario) -> None:
        super().__init__(server)
        self.settings = Settings(self.port, folder)
        self.settings.podlist.parent.mkdir(parents=True)
        self.fake = FakeNvml(scenario, folder)
        self.config = folder / "podgpu.yaml"
        self.config.write_text(self.settings.text())
        self.hold({})
        self.process: Process | None = None

    def start(self, env: Mapping[str, str] | None = None) -> None:
        self.process = Process(
            [PODGPU, "run", "-c", self.config],
            self.settings.folder / "podgpu.log",
            {**self.fake.env(), **(env or {})},
        )
        # Sinks that share a listener start one after the other.
        for path in ("/healthz", *self.settings.paths):
            self.process.wait_for_answer(self.settings.port, path)

    def stop(self) -> int:
        assert self.process is not None
        return self.process.stop()

    def output(self) -> str:
        return self.process.output() if self.process is not None else ""

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        return get(self.settings.port, path, headers)

    def page(self) -> str:
        answer = self.get(self.settings.paths[0])
        assert answer.status == 200, answer
        return answer.body.decode()

    def hold(self, held: Mapping[str, Iterable[str]]) -> None:
        """Write podlist.json: device ids by name of a pod in the namespace `ml`."""
        hold(self.settings.podlist, held)

    def reconfigure(self, **changes: object) -> None:
        """Replace the configuration and wait until it is in force."""
        taken = "configuration reloaded"
        before = self.output().count(taken)
        self.settings = replace(self.settings, **changes)  # type: ignore[arg-type]
        new = self.config.with_suffix(".new")
        new.write_text(self.settings.text())
        new.replace(self.config)
        wait_until(lambda: self.output().count(taken) > before, f"reload:\n{self.output()[-2000:]}")


def hold(podlist: Path, held: Mapping[str, Iterable[str]]) -> None:
    """Write a podlist.json: device ids by name of a pod in the namespace `ml`."""
    entries = [
        {"name": pod, "namespace": "ml", "container": "main", "gpu_list": list(ids)}
        for pod, ids in held.items()
    ]
    new = podlist.with_suffix(".new")
    new.write_text(json.dumps(entries))
    new.replace(podlist)


@contextmanager
def running(server: Server, folder: Path, scenario: Scenario) -> Iterator[Node]:
    """Run a podgpu on a node and stop it at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    node = Node(server, folder, scenario)
    try:
        node.start()
        yield node
    finally:
        if node.process is not None:
            node.process.stop()
            # pytest shows it if the test has failed.
            print(node.output()[-5000:])
