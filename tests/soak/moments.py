"""Ends podgpu at random moments, and looks at its exit status and at the files it leaves.

    python -m tests.soak.moments 1000 [--seed N] [--jobs N]

Each moment is a podgpu of its own on simulated GPUs. A seed and a number tell what happens to it
and after how many seconds; how far podgpu has come by then depends on the machine.
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
from tests.e2e.kept import kept
from tests.e2e.node import PODGPU, hold
from tests.e2e.processes import Process, free_ports, wait_until
from tests.fakes.nvml import FakeNvml, h100s

GRACE: Final = 5.0
"""Seconds that podgpu has to stop."""

PATIENCE: Final = 12.0
"""The same on a machine that is busy with much else: idle, none takes a second."""

_FOREVER: Final = 1 << 62
_LEFT: Final = frozenset(
    {"lines.jsonl", "page.prom", "usage.db", "usage.db.lock", "queue", "podlist.json"}
)
"""Names of what may lie in the folder of its files afterwards."""


class Victim:
    """A podgpu with all sinks that write files.

    Args:
        folder: where its files lie.
        chance: what decides.

    Attributes:
        statuses: with which it may end.
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
        self._reported: float | None = None

    @property
    def process(self) -> Process:
        assert self._process is not None
        return self._process

    # What can happen to it.

    def start(self) -> None:
        self._process = Process([PODGPU, "run", "-c", self._config], self._log, self._fake.env())

    def begun(self) -> None:
        """Wait until it has read its configuration."""
        wait_until(lambda: "starting: " in self._log.read_text(), "the start", every=0.01)
        self._read = True

    def sleep(self, least: float, most: float) -> None:
        time.sleep(self.chance.uniform(least, most))

    def edit(self, text: str | None = None) -> None:
        """Put another file in the place of the configuration.

        Once podgpu has read it, that may be done by writing into it: who starts just then would
        find half a configuration, and end with status 2.
        """
        text = yaml.safe_dump(self.settings, sort_keys=False) if text is None else text
        if not self._read or self.chance.random() < 0.5:
            new = self._config.with_suffix(".new")
            new.write_text(text)
            new.replace(self._config)
        else:
            self._config.write_text(text)

    def change(self) -> None:
        """Change the options of some components, or take some away."""
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
        """Send SIGTERM; before Python itself has begun, that ends any program by the signal."""
        if self._reported is None:
            if not self.process.catches(signal.SIGTERM):
                self.statuses.add(-signal.SIGTERM)
            self._reported = time.monotonic()
        self.process.send(signal.SIGTERM)

    # What came of it.

    def check(self) -> int:
        """Wait for its end, look at all that it has left, and return its status.

        Raises:
            AssertionError: something isn't as it has to be.
        """
        status = self.process.wait()
        said = self._log.read_text()
        seconds = 0.0 if self._reported is None else time.monotonic() - self._reported
        assert status in self.statuses, f"status {status}, not of {self.statuses}"
        assert "Traceback" not in said, "a traceback"
        assert seconds < PATIENCE, f"{seconds:.1f} s to end"
        self._check_files(killed=status == -signal.SIGTERM)
        return status

    def _check_files(self, *, killed: bool) -> None:
        found = {each.name for each in self.files.iterdir()}
        assert found <= _LEFT, f"left behind: {sorted(found - _LEFT)}"
        if "page.prom" in found:
            text = (self.files / "page.prom").read_text()
            assert text.endswith("\n"), "half a page"
            assert list(text_string_to_metric_families(text))
        if "podlist.json" in found:
            assert isinstance(json.loads((self.files / "podlist.json").read_text()), list)
        if "lines.jsonl" in found:
            text = (self.files / "lines.jsonl").read_text()
            assert not text or text.endswith("\n"), "half a line"
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
        assert not killed or not found, "killed by the signal once it had begun"

    def end(self) -> str:
        """Leave nothing running; return what it said."""
        if self._process is not None and self._process.running:
            self._process.stop(signal.SIGKILL)
        return self._log.read_text() if self._log.exists() else ""


# What happens.


def terminated(victim: Victim) -> None:
    victim.start()
    victim.sleep(0, 2)
    victim.terminate()


def terminated_twice(victim: Victim) -> None:
    terminated(victim)
    victim.sleep(0, 0.4)
    victim.terminate()


def changed(victim: Victim) -> None:
    victim.start()
    victim.begun()
    victim.sleep(0, 1)
    victim.change()
    if victim.chance.random() < 0.5:
        victim.hang_up()
    victim.sleep(0, 1)
    victim.terminate()


def changed_twice(victim: Victim) -> None:
    victim.start()
    victim.begun()
    victim.sleep(0, 1)
    victim.change()
    victim.sleep(0, 0.5)
    victim.change()
    victim.hang_up()
    victim.sleep(0, 1)
    victim.terminate()


def changed_within_the_start(victim: Victim) -> None:
    victim.start()
    victim.sleep(0, 0.8)
    victim.change()
    victim.hang_up()
    victim.sleep(0, 1)
    victim.terminate()


def spoilt_within_the_start(victim: Victim) -> None:
    """Whether it was read before, podgpu knows."""
    victim.start()
    victim.sleep(0, 0.8)
    victim.edit("sources: [")
    victim.statuses.add(2)
    victim.sleep(0, 1)
    victim.terminate()


def denied_at_the_start(victim: Victim) -> None:
    """A port is taken; SIGTERM may come before that is found out."""
    with socket.create_server(("127.0.0.1", victim.port)):
        victim.start()
        victim.statuses.add(2)
        victim.sleep(0, 1.5)
        victim.terminate()
        victim.process.wait()


def denied_by_a_change(victim: Victim) -> None:
    """A change that can't be had leaves what was."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        victim.start()
        victim.begun()
        victim.sleep(0, 1.5)
        victim.settings["sinks"]["page"]["listen"] = f"127.0.0.1:{taken.getsockname()[1]}"
        victim.change()
        victim.sleep(0, 1)
        victim.terminate()
        victim.process.wait()


def failing_permanently(victim: Victim) -> None:
    """A source finds out after its start that its options can't be had."""
    victim.settings["sources"]["gpus"]["devices"] = "99"
    victim.edit()
    victim.start()
    victim.statuses.add(2)
    victim.sleep(0.3, 1.5)
    victim.terminate()


STORIES: Final[tuple[Callable[[Victim], None], ...]] = (
    terminated,
    terminated_twice,
    changed,
    changed_twice,
    changed_within_the_start,
    spoilt_within_the_start,
    denied_at_the_start,
    denied_by_a_change,
    failing_permanently,
)


def play(number: int, seed: int) -> tuple[str, int, str]:
    """Let one thing happen; return what, the exit status, and what was wrong, if anything."""
    chance = random.Random(f"{seed}/{number}")
    story = STORIES[number % len(STORIES)]
    with tempfile.TemporaryDirectory(prefix="podgpu-moment-") as made:
        victim = Victim(Path(made), chance)
        try:
            story(victim)
            return story.__name__, victim.check(), ""
        except Exception as error:  # noqa: BLE001 - whatever a check raises is what is wrong
            said = victim.end()
            return story.__name__, 1, f"{type(error).__name__}: {error}\n{said[-4000:]}"
        finally:
            victim.end()


def run(count: int, seed: int, jobs: int = 2) -> list[str]:
    """Let so many things happen; print what came of them, and return what was wrong."""
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
    print(f"{count} moments, seed {seed}: {len(wrong)} wrong")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=1000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    seed = random.randrange(1 << 30) if given.seed is None else given.seed
    return bool(run(given.count, seed, given.jobs))


if __name__ == "__main__":
    sys.exit(main())
