"""End podgpu at random times, and check its exit status and the files that it leaves.

    python -m tests.soak.moments 1000 [--seed N] [--jobs N]

Each moment is a separate podgpu on simulated GPUs. A seed and a number determine what happens to
it, and after how many seconds; how far podgpu has come by then depends on the machine.
"""

import argparse
import json
import random
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml
from prometheus_client.parser import text_string_to_metric_families

from pipeline.ledger.file_open import open_readonly
from pipeline.ledger.queries import read_holdings, read_window
from tests.e2e.node import PODGPU, hold
from tests.e2e.processes import Process, free_ports, wait_until
from tests.e2e.queue_content import kept
from tests.fakes.nvml import FakeNvml, h100s

GRACE: Final = 5.0
"""The shutdown grace period in seconds."""

PATIENCE: Final = 12.0
"""The longest stop in seconds on a busy machine; on an idle machine it takes below a second."""

_FOREVER: Final = 1 << 62
_LEFT: Final = frozenset(
    {"lines.jsonl", "page.prom", "usage.db", "usage.db.lock", "queue", "podlist.json"}
)
"""The names of the files that podgpu may leave."""


class TestedPodgpu:
    """A podgpu with all sinks that write files.

    Args:
        folder: the folder of its files.
        chance: the random generator.

    Attributes:
        statuses: the exit statuses that are correct.
    """

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.files = folder / "files"
        self.files.mkdir()
        self.chance = chance
        self.statuses = {0}
        self._read = False
        self._config = folder / "podgpu.yaml"
        self._log = folder / "podgpu.log"
        self._fake = FakeNvml(h100s(2), folder)
        self.port, away = free_ports(2)
        path = self.files
        self.settings: dict[str, Any] = {
            "node": "gpu-node",
            "shutdown_grace": f"{GRACE:g}s",
            "sources": {
                "gpus": {"kind": "nvml", "interval": "200ms", "usage_interval": "1s"},
                "pods": {"kind": "podlist", "path": str(folder / "podlist.json")},
            },
            "sinks": {
                "page": {"kind": "prometheus", "listen": f"127.0.0.1:{self.port}"},
                "file": {"kind": "textfile", "path": str(path / "page.prom"), "keep": True},
                "lines": {"kind": "jsonl", "path": str(path / "lines.jsonl")},
                "list": {"kind": "podlist", "path": str(path / "podlist.json")},
                "usage": {
                    "kind": "ledger",
                    "path": str(path / "usage.db"),
                    "commit_interval": "100ms",
                },
                "push": {
                    "kind": "otlp",
                    "endpoint": f"http://127.0.0.1:{away}",
                    "protocol": "http/protobuf",
                    "queue": {"path": str(path / "queue")},
                },
            },
        }
        hold(folder / "podlist.json", {"train": [self._fake.scenario.gpus[0].uuid]})
        self.edit()
        self._process: Process | None = None
        self._terminated_at: float | None = None

    @property
    def process(self) -> Process:
        assert self._process is not None
        return self._process

    # Actions.

    def start(self) -> None:
        self._process = Process([PODGPU, "run", "-c", self._config], self._log, self._fake.env())

    def wait_until_started(self) -> None:
        """Wait until podgpu has read its configuration."""
        wait_until(lambda: "starting: " in self._log.read_text(), "the start", every=0.01)
        self._read = True

    def sleep(self, least: float, most: float) -> None:
        time.sleep(self.chance.uniform(least, most))

    def edit(self, text: str | None = None) -> None:
        """Change the configuration file.

        After podgpu has read it, the file may also be overwritten in place. Before that, podgpu
        could read an incomplete file, and would end with status 2.
        """
        text = yaml.safe_dump(self.settings, sort_keys=False) if text is None else text
        if not self._read or self.chance.random() < 0.5:
            new = self._config.with_suffix(".new")
            new.write_text(text)
            new.replace(self._config)
        else:
            self._config.write_text(text)

    def change(self) -> None:
        """Change the options of some components, or remove some."""
        sinks, sources = self.settings["sinks"], self.settings["sources"]
        sources["gpus"]["interval"] = self.chance.choice(["150ms", "250ms"])
        sinks["usage"]["commit_interval"] = self.chance.choice(["100ms", "200ms"])
        sinks["lines"]["max_size"] = self.chance.choice(["1MiB", "2MiB"])
        sinks["file"]["interval"] = self.chance.choice(["1s", "2s"])
        if self.chance.random() < 0.3:
            sinks.pop(self.chance.choice(["list", "push", "page"]), None)
        self.edit()

    def hang_up(self) -> None:
        if self.process.catches(signal.SIGHUP):
            self.process.send(signal.SIGHUP)

    def terminate(self) -> None:
        """Send SIGTERM; before Python has installed a handler, the signal ends the process."""
        if self._terminated_at is None:
            if not self.process.catches(signal.SIGTERM):
                self.statuses.add(-signal.SIGTERM)
            self._terminated_at = time.monotonic()
        self.process.send(signal.SIGTERM)

    # Checks.

    def check(self) -> int:
        """Wait for its end, check all files that it has left, and return its status.

        Raises:
            AssertionError: a check failed.
        """
        status = self.process.wait()
        text = self._log.read_text()
        seconds = 0.0 if self._terminated_at is None else time.monotonic() - self._terminated_at
        assert status in self.statuses, f"status {status}, not of {self.statuses}"
        assert "Traceback" not in text, "a traceback"
        assert seconds < PATIENCE, f"{seconds:.1f} s to end"
        self._check_files(killed=status == -signal.SIGTERM)
        return status

    def _check_files(self, *, killed: bool) -> None:
        found = {each.name for each in self.files.iterdir()}
        assert found <= _LEFT, f"left behind: {sorted(found - _LEFT)}"
        if "page.prom" in found:
            text = (self.files / "page.prom").read_text()
            assert text.endswith("\n"), "an incomplete page"
            assert list(text_string_to_metric_families(text))
        if "podlist.json" in found:
            assert isinstance(json.loads((self.files / "podlist.json").read_text()), list)
        if "lines.jsonl" in found:
            text = (self.files / "lines.jsonl").read_text()
            assert not text or text.endswith("\n"), "an incomplete line"
            for line in text.splitlines():
                json.loads(line)
        if "usage.db" in found:
            with closing(open_readonly(self.files / "usage.db")) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
                read_window(connection, 0, _FOREVER)
                read_holdings(connection, 0, _FOREVER)
        if "queue" in found:
            assert not list((self.files / "queue").glob("*.corrupt-*"))
            kept(self.files / "queue")
        assert not killed or not found, "killed by the signal after it had started"

    def end(self) -> str:
        """Kill the process if it runs; return its log."""
        if self._process is not None and self._process.running:
            self._process.stop(signal.SIGKILL)
        return self._log.read_text() if self._log.exists() else ""


# The stories.


def terminated(podgpu: TestedPodgpu) -> None:
    podgpu.start()
    podgpu.sleep(0, 2)
    podgpu.terminate()


def terminated_twice(podgpu: TestedPodgpu) -> None:
    terminated(podgpu)
    podgpu.sleep(0, 0.4)
    podgpu.terminate()


def changed(podgpu: TestedPodgpu) -> None:
    podgpu.start()
    podgpu.wait_until_started()
    podgpu.sleep(0, 1)
    podgpu.change()
    if podgpu.chance.random() < 0.5:
        podgpu.hang_up()
    podgpu.sleep(0, 1)
    podgpu.terminate()


def changed_twice(podgpu: TestedPodgpu) -> None:
    podgpu.start()
    podgpu.wait_until_started()
    podgpu.sleep(0, 1)
    podgpu.change()
    podgpu.sleep(0, 0.5)
    podgpu.change()
    podgpu.hang_up()
    podgpu.sleep(0, 1)
    podgpu.terminate()


def changed_during_the_start(podgpu: TestedPodgpu) -> None:
    podgpu.start()
    podgpu.sleep(0, 0.8)
    podgpu.change()
    podgpu.hang_up()
    podgpu.sleep(0, 1)
    podgpu.terminate()


def invalid_configuration_during_the_start(podgpu: TestedPodgpu) -> None:
    """podgpu may have read the valid configuration before."""
    podgpu.start()
    podgpu.sleep(0, 0.8)
    podgpu.edit("sources: [")
    podgpu.statuses.add(2)
    podgpu.sleep(0, 1)
    podgpu.terminate()


def port_in_use_at_the_start(podgpu: TestedPodgpu) -> None:
    """A port is in use; SIGTERM may come before podgpu notices that."""
    with socket.create_server(("127.0.0.1", podgpu.port)):
        podgpu.start()
        podgpu.statuses.add(2)
        podgpu.sleep(0, 1.5)
        podgpu.terminate()
        podgpu.process.wait()


def port_in_use_after_a_change(podgpu: TestedPodgpu) -> None:
    """A reload that fails keeps the previous configuration."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        podgpu.start()
        podgpu.wait_until_started()
        podgpu.sleep(0, 1.5)
        podgpu.settings["sinks"]["page"]["listen"] = f"127.0.0.1:{taken.getsockname()[1]}"
        podgpu.change()
        podgpu.sleep(0, 1)
        podgpu.terminate()
        podgpu.process.wait()


def failing_permanently(podgpu: TestedPodgpu) -> None:
    """A source notices after its start that its options cannot work."""
    podgpu.settings["sources"]["gpus"]["devices"] = "99"
    podgpu.edit()
    podgpu.start()
    podgpu.statuses.add(2)
    podgpu.sleep(0.3, 1.5)
    podgpu.terminate()


STORIES: Final[tuple[Callable[[TestedPodgpu], None], ...]] = (
    terminated,
    terminated_twice,
    changed,
    changed_twice,
    changed_during_the_start,
    invalid_configuration_during_the_start,
    port_in_use_at_the_start,
    port_in_use_after_a_change,
    failing_permanently,
)


def play(number: int, seed: int) -> tuple[str, int, str]:
    """Play one story; return its name, the exit status, and the error, if any."""
    chance = random.Random(f"{seed}/{number}")
    story = STORIES[number % len(STORIES)]
    with tempfile.TemporaryDirectory(prefix="podgpu-moment-") as made:
        podgpu = TestedPodgpu(Path(made), chance)
        try:
            story(podgpu)
            return story.__name__, podgpu.check(), ""
        except Exception as error:  # noqa: BLE001 - any exception of a check is an error
            text = podgpu.end()
            return story.__name__, 1, f"{type(error).__name__}: {error}\n{text[-4000:]}"
        finally:
            podgpu.end()


def run(count: int, seed: int, jobs: int = 2) -> list[str]:
    """Play `count` stories; print the exit statuses, and return the errors."""
    statuses: Counter[tuple[str, int]] = Counter()
    wrong: list[str] = []
    with ThreadPoolExecutor(jobs) as pool:
        played = pool.map(partial(play, seed=seed), range(count))
        for number, (name, status, fault) in enumerate(played):
            statuses[name, status] += 1
            if fault:
                wrong.append(f"moment {number} of seed {seed}, {name}: {fault}")
                print(wrong[-1], flush=True)
    for (name, status), times in sorted(statuses.items()):
        print(f"{name}: status {status}: {times}")
    print(f"{count} moments, seed {seed}: {len(wrong)} errors")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=1000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    seed = random.randrange(1 << 30) if arguments.seed is None else arguments.seed
    return bool(run(arguments.count, seed, arguments.jobs))


if __name__ == "__main__":
    sys.exit(main())
