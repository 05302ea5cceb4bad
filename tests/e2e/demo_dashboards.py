"""A Prometheus 3 that scrapes `podgpu demo` and evaluates the rules, for tests of the dashboards.

The recording rules have windows of five minutes, and a test has less time. So all of their times,
and those of the panels that show them, are divided.
"""

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.dashboards import FILES, FOLDER
from tests.e2e import peers
from tests.e2e.dashboard_viewer import Viewer
from tests.e2e.node import PODGPU
from tests.e2e.processes import Process, free_ports, get
from tests.e2e.promql import QueriedPrometheus

SCRAPE = 2
"""Seconds between two scrapes."""

SHORTER: Mapping[str, str] = {
    "offset 5m30s": "offset 14s",
    "offset 30s": "offset 4s",
    "[5m]": "[10s]",
    "[1h]": "[60s]",
}
"""Times of the recording rules, and what they are in the tests."""

STEP = 10
"""Seconds between two evaluations, instead of 300."""


def rules() -> str:
    """Return the recording rules with shorter times."""
    groups = yaml.safe_load((FOLDER.parent / "recording-rules.yaml").read_text())["groups"]
    for group in groups:
        group["interval"] = f"{STEP}s"
        for rule in group["rules"]:
            for old, new in SHORTER.items():
                rule["expr"] = rule["expr"].replace(old, new)
    return json.dumps({"groups": groups})  # JSON is YAML


def dashboard(name: str) -> Mapping[str, Any]:
    """Return a dashboard whose panels fit the shorter rules."""
    text = json.dumps(FILES[name])
    text = re.sub(r'"interval": "5m"', f'"interval": "{STEP}s"', text)
    text = re.sub(r'"interval": "1m"', '"interval": "20s"', text)
    text = re.sub(r"\* 300(?=\)| /)", f"* {STEP}", text)
    found: Mapping[str, Any] = json.loads(text)
    return found


class Demo(QueriedPrometheus):
    """The Prometheus and the demo that it scrapes.

    Attributes:
        page_port: the port of the demo.
        begun: when it was first scraped, as Unix time.
    """

    def __init__(self, process: Process, port: int, page_port: int) -> None:
        super().__init__(process, port)
        self.page_port = page_port
        self.begun = time.time()

    def page(self) -> str:
        """Return the demo's page."""
        return get(self.page_port, "/metrics").body.decode()

    def viewer(self, name: str, end: float, **choices: str) -> Viewer:
        """Return a dashboard that shows all the time since the beginning, until a time."""
        return Viewer(
            self,
            dashboard(name),
            end=end,
            seconds=round(end - self.begun),
            scrape_interval=SCRAPE,
            choices=choices,
        )


@contextmanager
def demo(folder: Path) -> Iterator[Demo]:
    """Run both, and stop them at the end."""
    page_port, port = free_ports(2)
    address = f"127.0.0.1:{page_port}"
    (folder / "rules.json").write_text(rules())
    (folder / "prometheus.json").write_text(json.dumps(_config(address, folder / "rules.json")))
    # An empty library path: the demo needs no driver.
    env = {"LD_LIBRARY_PATH": "", "HOME": str(folder)}
    playing = Process([PODGPU, "demo", "--listen", address], folder / "demo.log", env)
    server = Process(
        [
            peers.prometheus().server,
            f"--config.file={folder / 'prometheus.json'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        folder / "prometheus.log",
    )
    try:
        playing.wait_for_answer(page_port, "/healthz")
        made = Demo(server, port, page_port)
        made.wait_ready()
        yield made
    finally:
        statuses = [server.stop(), playing.stop()]
        print(server.output()[-3000:], playing.output()[-3000:])
    assert statuses == [0, 0]


def _config(address: str, rule_file: Path) -> dict[str, Any]:
    every = f"{SCRAPE}s"
    job = {
        "job_name": "podgpu",
        "honor_labels": True,
        "static_configs": [{"targets": [address]}],
    }
    return {
        "global": {"scrape_interval": every, "scrape_timeout": every},
        "rule_files": [str(rule_file)],
        "scrape_configs": [job],
    }
