"""Stories with real processes: podgpu with a simulated NVML, SIGKILL, and libfaketime.

    python -m tests.accounting.processes --stories 300 --seed 0

podlist.json changes the holder of the GPU, the energy counter grows at a known rate, and the wall
clock is set while podgpu runs and while it doesn't (`FAKETIME_DONT_FAKE_MONOTONIC`: the monotonic
clock is real). The test doesn't know when samples are taken, but this must be true:

- Accounted time and gaps sum exactly to the time between the first sample and the last.
- In each hour the parts sum to the total; the holdings of a container sum to its total; each
  holding has its length.
- Each SIGKILL is one gap, which starts at most a commit interval and a usage interval before it.
- A container held the GPU for the time that podlist.json says, less the gaps, within `LATE` of
  each change; energy is that of the counter, within its increase in `LATE`.
- Usage is in hours that the wall clock showed.
"""

import argparse
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.accounting.actions import HOUR, S
from tests.e2e import debian
from tests.fakes.nvml.fake import FakeNvml
from tests.fakes.nvml.scenario import Gpu, Ramp, Scenario

ROOT: Final = Path(__file__).parents[2]
WATTS: Final = 300
COMMIT_INTERVAL: Final = 0.2
USAGE_INTERVAL: Final = 1.0
LATE: Final = 1.5
"""Seconds by which a busy machine may be late to take a sample or to read a list."""
UUID: Final = "GPU-0a0a0a0a-5eed-4a5e-9c0d-000000000000"
STEPS: Final = (3600, -3600, 86400 * 7, -90, 12 * 366 * 86400)
CONFIG: Final = """\
node: node-1
sources:
  gpus: {{kind: nvml, usage_interval: 1s, interval: 5s}}
  list: {{kind: podlist, path: {folder}/podlist.json, interval: 1s}}
sinks:
  usage: {{kind: ledger, path: {folder}/usage.db, commit_interval: {commit}s, keep: 0s}}
"""


@dataclass
class Truth:
    """What really happened, by the monotonic clock, in seconds.

    Attributes:
        holders: the holders of the GPU, with the time from which each holds it.
        kills: times of SIGKILL.
        hours: hours that the wall clock has shown.
    """

    holders: list[tuple[float, str]] = field(default_factory=list)
    kills: list[float] = field(default_factory=list)
    hours: set[int] = field(default_factory=set)

    def held(self, pod: str, begin: float, end: float) -> float:
        """Return for how long a pod held the GPU within a time."""
        ends = [*(since for since, _ in self.holders[1:]), end]
        return sum(
            max(min(until, end) - max(since, begin), 0)
            for (since, holder), until in zip(self.holders, ends, strict=True)
            if holder == pod
        )


class Machine:
    """A machine whose wall clock is set.

    Args:
        folder: for its files.
        faketime: the library.
    """

    def __init__(self, folder: Path, faketime: Path) -> None:
        self.folder = folder
        self.truth = Truth()
        gpu = Gpu(uuid=UUID, values={"energy": Ramp(10_000_000, WATTS * 1000.0)})
        self._nvml = FakeNvml(Scenario(gpus=[gpu]), folder)
        self._clock = folder / "clock"
        self._ahead = 0
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "podgpu.yaml").write_text(CONFIG.format(folder=folder, commit=COMMIT_INTERVAL))
        self._env = {
            **os.environ,
            **self._nvml.env(),
            "LD_PRELOAD": str(faketime),
            "FAKETIME_TIMESTAMP_FILE": str(self._clock),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        self.set(0)
        self.hold("")

    @property
    def wall_ns(self) -> int:
        """The time that the wall clock shows."""
        return time.time_ns() + self._ahead * S

    def note_hour(self) -> None:
        self.truth.hours.add(self.wall_ns // HOUR)

    def set(self, by: int) -> None:
        """Set the wall clock by some seconds."""
        self.note_hour()
        self._ahead += by
        new = self._clock.with_suffix(".new")
        new.write_text(f"{self._ahead:+d}\n")
        new.rename(self._clock)
        self.note_hour()

    def hold(self, pod: str) -> None:
        """Let a pod hold the GPU from now on; no container if its name is empty."""
        names = {"namespace": "ml", "name": pod, "container": "main", "gpu_list": [UUID]}
        new = self.folder / "podlist.new"
        new.write_text(json.dumps([names] if pod else []))
        self.truth.holders.append((time.monotonic(), pod))
        new.rename(self.folder / "podlist.json")

    def start(self) -> None:
        """Start podgpu and wait until a sample has been written."""
        before = self.accounted()
        command = [sys.executable, "-m", "podgpu", "run", "-c", str(self.folder / "podgpu.yaml")]
        with (self.folder / "podgpu.log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=ROOT, env=self._env, stderr=log)
        until = time.monotonic() + 60
        while self.accounted() == before:
            if time.monotonic() > until or self._process.poll() is not None:
                raise RuntimeError((self.folder / "podgpu.log").read_text()[-2000:])
            time.sleep(0.05)

    def accounted(self) -> int:
        """Return the accounted time in the file, in nanoseconds."""
        try:
            found = rows(self.folder, "SELECT sum(accounted_ns) FROM device_hours")
        except sqlite3.Error:
            return 0
        return int(found[0][0] or 0)

    def end(self, how: signal.Signals) -> None:
        """End podgpu."""
        process, self._process = self._process, None
        assert process is not None
        if how is signal.SIGKILL:
            self.truth.kills.append(time.monotonic())
        process.send_signal(how)
        process.wait(30)
        self.note_hour()


def rows(folder: Path, text: str, *parameters: object) -> list[tuple[Any, ...]]:
    path = f"file:{folder / 'usage.db'}?mode=ro"
    with closing(sqlite3.connect(path, uri=True)) as connection:
        return connection.execute(text, parameters).fetchall()


def play(machine: Machine, chance: random.Random) -> None:
    """Play a story of two or three runs."""
    pods = iter("abcdefgh")
    machine.set(chance.choice((0, 0, *STEPS)))
    runs = chance.choice((2, 3))
    for number in range(runs):
        machine.start()
        for _ in range(chance.randrange(1, 4)):
            time.sleep(chance.uniform(0.2, 1.5))
            match chance.randrange(3):
                case 0:
                    machine.set(chance.choice(STEPS))
                case 1:
                    machine.hold(next(pods, ""))
                case _:
                    machine.hold("")
        last = number + 1 == runs
        if last:
            time.sleep(2 * USAGE_INTERVAL)
        machine.end(signal.SIGTERM if last or chance.random() < 0.2 else signal.SIGKILL)
        if not last and chance.random() < 0.6:
            machine.set(chance.choice(STEPS))


def differences(machine: Machine) -> list[str]:
    """Return what is wrong in the file after a story."""
    folder, truth, found = machine.folder, machine.truth, list[str]()
    [(text,)] = rows(folder, "SELECT usage FROM state")
    state = json.loads(str(text))
    begin, end = (state[name]["mono_ns"] for name in ("start", "at"))
    [(accounted, gaps, energy)] = rows(
        folder, "SELECT sum(accounted_ns), sum(gap_ns), sum(energy_mj) FROM device_hours"
    )
    if accounted + gaps != end - begin:
        found.append(f"accounted {accounted} and gaps {gaps} aren't the time of {end - begin}")
    shown = machine.wall_ns - int(rows(folder, "SELECT max(at_ns) FROM state")[0][0])
    if not 0 <= shown < 30 * S:
        found.append(f"the last sample was {shown / S:.0f} s ago by the wall clock: it isn't set")
    found += _sums(folder)
    found += _gaps(folder, truth, gaps)
    changes = len(truth.holders) + len(truth.kills)
    for pod in {holder for _, holder in truth.holders if holder}:
        true = truth.held(pod, begin / S, end / S)
        [(held,)] = rows(
            folder,
            "SELECT ifnull(sum(h.held_ns), 0) FROM hours AS h JOIN containers AS c "
            "ON c.id = h.container WHERE c.pod = ?",
            pod,
        )
        if not true - gaps / S - LATE * 2 <= held / S <= true + LATE * 2:
            found.append(f"{pod} held {held / S:.3f} s, expected {true:.3f} s")
    expected, slack = WATTS * accounted / 1e6, WATTS * 1000 * LATE * (1 + changes)
    if not abs(energy - expected) <= slack:
        found.append(f"energy {energy} mJ, and by the counter {expected:.0f}")
    hours = {int(hour) for (hour,) in rows(folder, "SELECT hour FROM hours WHERE held_ns > 0")}
    unexpected = [hour for hour in hours if not {hour - 1, hour, hour + 1} & truth.hours]
    if unexpected:
        found.append(f"hours {unexpected}, which the clock never showed: {sorted(truth.hours)}")
    return found


def _sums(folder: Path) -> list[str]:
    found = []
    for hour, whole, parts in rows(
        folder,
        "SELECT d.hour, d.accounted_ns, sum(h.held_ns) FROM device_hours AS d JOIN hours AS h "
        "ON h.hour = d.hour AND h.device = d.device GROUP BY d.hour",
    ):
        if whole != parts:
            found.append(f"hour {hour}: {whole} accounted, and its parts sum to {parts}")
    for length, counted, number in rows(
        folder,
        "SELECT ifnull(end_ns, until_ns) - start_ns, counted_ns + gap_ns, count(*) FROM holdings "
        "GROUP BY id",
    ):
        if length != counted or number != 1:
            found.append(f"a holding of {length} ns has {counted} ns, in {number} rows")
    held = dict(rows(folder, "SELECT container, sum(held_ns) FROM holdings GROUP BY 1"))
    whole = dict(
        rows(folder, "SELECT container, sum(held_ns) FROM hours WHERE container > 0 GROUP BY 1")
    )
    if {holder: time for holder, time in held.items() if time} != whole:
        found.append(f"holdings have {held}, and containers {whole}")
    return found


def _gaps(folder: Path, truth: Truth, gap_time: int) -> list[str]:
    found = []
    gaps = rows(folder, "SELECT end_ns - start_ns, reason FROM gaps")
    reasons = Counter(str(reason) for _, reason in gaps)
    if sum(int(length) for length, _ in gaps) != gap_time:
        found.append(f"gaps of {gaps} in rows, and of {gap_time} ns in hours")
    if reasons["blind"]:
        found.append(f"podgpu was blind: {gaps}")
    lengths = sorted(int(length) / S for length, _ in gaps)
    if len(lengths) < len(truth.kills):
        found.append(f"{len(truth.kills)} kills, and gaps of {lengths}")
    return found


def check(seed: int, faketime: Path) -> list[str]:
    """Return what is wrong after the story of a seed."""
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder), faketime)
        play(machine, random.Random(seed))
        found = differences(machine)
        if found:
            found.append(f"podgpu's log:\n{(Path(folder) / 'podgpu.log').read_text()}")
        return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.accounting.processes")
    parser.add_argument("--stories", type=int, default=10)
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the first story; others follow"
    )
    options = parser.parse_args()
    faketime = debian.faketime()
    start, different = time.monotonic(), 0
    for seed in range(options.seed, options.seed + options.stories):
        if differences_ := check(seed, faketime):
            different += 1
            print(f"seed {seed}:", *differences_, sep="\n  ", flush=True)
    took = time.monotonic() - start
    print(f"{options.stories} stories from seed {options.seed}, {different} differ, {took:.0f} s")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
