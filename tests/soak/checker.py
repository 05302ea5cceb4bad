"""Looks at podgpu once a second, and remembers all that wasn't right."""

import base64
import http.client
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.podgpu import Series
from tests.soak.world import LOOK, PASSWORD, USER, WATTS, World, podlist_of

ANSWER: Final = 5.0
"""Seconds for an answer, of a machine that is busy with the clients too."""

SETTLED: Final = 15.0
"""Seconds after a start, or after a fault in which podgpu needn't answer, until it has to again."""

SLACK: Final = 3.0
"""Seconds by which a killed podgpu's accounts may fall besides what wasn't written."""

_DEVICE: Final = "podgpu_device_"
_HELD: Final = "podgpu_container_held_seconds_total"
_OWN: Final = ("podgpu_", "process_cpu_")
_MISSED: Final = frozenset({"queue_full", "stopped", "not_finite", "doubled", "missed"})
"""Reasons for which readings are dropped before they are points."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What the process takes: MiB, and counts."""

    memory: float
    threads: int
    descriptors: int


@dataclass
class Page:
    """A page that was answered.

    Attributes:
        at: on the monotonic clock.
        life: number of the run of podgpu that it is of.
        values: by name and labels.
    """

    at: float
    life: int
    values: Series
    counters: frozenset[str]

    def of(self, name: str) -> dict[str, float]:
        """Return the sum of a family by device."""
        found: dict[str, float] = {}
        for (each, pairs), value in self.values.items():
            if each == name:
                device = dict(pairs).get("UUID", "")
                found[device] = found.get(device, 0) + value
        return found

    def of_sink(self, sink: str, name: str) -> dict[str, float]:
        """Return a family of a sink that sends, by reason."""
        return {
            dict(pairs).get("reason", ""): value
            for (each, pairs), value in self.values.items()
            if each == f"podgpu_sink_{name}" and dict(pairs).get("sink") == sink
        }


@dataclass
class Checker:
    """The thread that looks.

    Attributes:
        world: what it looks at.
        wrong: what wasn't right.
        pages: how many were answered.
        slowest: seconds that the slowest answer took.
        most: the most that the process ever took.
        deaf: how many faults last in which podgpu needn't answer.
        deaf_until: up to when it needn't besides.
        begun: when the account of each device began, on the monotonic clock.
        last: the page before.
        over: podgpu has ended by itself.
    """

    world: World
    wrong: list[str] = field(default_factory=list)
    pages: int = 0
    slowest: float = 0.0
    most: Figures = field(default_factory=lambda: Figures(0, 0, 0))
    deaf: int = 0
    deaf_until: float = 0.0
    begun: dict[str, float] = field(default_factory=dict)
    last: Page | None = None
    over: bool = False

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._forgotten: set[str] = set()
        self._containers: set[tuple[int, frozenset[tuple[str, str]]]] = set()
        self._tls = ssl.create_default_context()
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def note(self, text: str) -> None:
        if len(self.wrong) < 50:
            self.wrong.append(f"{time.strftime('%H:%M:%S')} {text}")
            print(f"WRONG: {self.wrong[-1]}", flush=True)

    def excused(self) -> bool:
        return self.deaf > 0 or time.monotonic() < self.deaf_until

    def begin_deaf(self) -> None:
        """Podgpu needn't answer until `end_deaf`, and some seconds longer."""
        self.deaf += 1

    def end_deaf(self) -> None:
        self.deaf_until = time.monotonic() + SETTLED
        self.deaf -= 1

    # One look.

    def _run(self) -> None:
        while not self._stop.wait(1.0):
            try:
                self._look()
            except Exception as error:  # noqa: BLE001 - whatever it is, it isn't right
                self.note(f"{type(error).__name__}: {error}")

    def _look(self) -> None:
        excused = self.excused()
        with self.world.lock:
            life = len(self.world.lives)
            running = self.world.process.running
            over = self.world.lives[-1].ended > 0  # it was ended on purpose
        if not running:
            if not over and not self.over:
                self.over = True
                self.note(f"podgpu has ended:\n{self.world.said()[-4000:]}")
            return
        began = time.monotonic()
        page = self.scrape(life)
        healthy = self.get("/healthz") if page is not None else None
        took = time.monotonic() - began
        self._files()
        if page is None or healthy is None:
            if not excused and not self.excused():
                self.note(f"no answer within {took:.1f} s")
            return
        if not excused:
            self.slowest = max(self.slowest, took)
        self.pages += 1
        figures = self.figures()
        if figures is not None:
            self.most = Figures(
                max(self.most.memory, figures.memory),
                max(self.most.threads, figures.threads),
                max(self.most.descriptors, figures.descriptors),
            )
        for device, seconds in page.of(f"{_DEVICE}accounted_seconds_total").items():
            self.begun.setdefault(device, page.at - seconds)
        for check in (self._counters, self._identities, self._points):
            for text in check(page):
                self.note(text)
        self.last = page

    def figures(self) -> Figures | None:
        """Return what the process takes now; None where there is none."""
        pid = self.world.process.pid
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            given_out = dict(line.split(":", 1) for line in lines)
            count = len(list(Path(f"/proc/{pid}/fd").iterdir()))
            return Figures(
                int(given_out["VmRSS"].split()[0]) / 1024, int(given_out["Threads"]), count
            )
        except (OSError, KeyError):
            return None

    def get(self, path: str) -> bytes | None:
        """Ask podgpu, with TLS or without; None where nothing comes in time."""
        word = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        for secure in (False, True, False):  # it may be changed between two of them
            connection: http.client.HTTPConnection
            if secure:
                connection = http.client.HTTPSConnection(
                    "127.0.0.1", self.world.port, timeout=ANSWER, context=self._tls
                )
            else:
                connection = http.client.HTTPConnection(
                    "127.0.0.1", self.world.port, timeout=ANSWER
                )
            try:
                connection.request("GET", path, headers={"Authorization": f"Basic {word}"})
                answer = connection.getresponse()
                body = answer.read()
            except (OSError, http.client.HTTPException):
                continue
            finally:
                connection.close()
            if answer.status == 200:
                return body
        return None

    def scrape(self, life: int) -> Page | None:
        body = self.get("/metrics")
        if body is None:
            return None
        values: Series = {}
        counters: set[str] = set()
        for family in text_string_to_metric_families(body.decode()):
            for sample in family.samples:
                key = sample.name, frozenset(sample.labels.items())
                if key in values:
                    self.note(f"twice on a page: {sample.name} {sample.labels}")
                values[key] = sample.value
                if family.type == "counter" and sample.name.startswith(_OWN):
                    counters.add(sample.name)
        return Page(time.monotonic(), life, values, frozenset(counters))

    def _files(self) -> None:
        """The files that others read are whole at each moment."""
        disk = self.world.disk
        for path, read in ((disk / "page.prom", _parsed), (disk / "podlist.json", podlist_of)):
            try:
                read(path)
            except FileNotFoundError:
                continue
            except Exception as error:  # noqa: BLE001 - a file that can't be read is half
                self.note(f"{path.name} isn't whole: {error}")

    # What has to hold.

    def _counters(self, page: Page) -> Iterator[str]:
        before = self.last
        if before is None:
            return
        if before.life == page.life:
            for key in before.values.keys() & page.values.keys():
                if key[0] in page.counters and page.values[key] < before.values[key]:
                    if self._is_another(key[1], page.values[key], page.at - before.at):
                        continue
                    yield f"fell: {key} from {before.values[key]} to {page.values[key]}"
            return
        gone = self.world.lives[before.life - 1 : page.life - 1]
        if any(life.sick for life in self.world.lives[before.life - 1 : page.life]):
            return  # nothing could be written, or told at the start
        allowed = sum(2 * LOOK + SLACK for life in gone if life.killed)
        name = f"{_DEVICE}accounted_seconds_total"
        after = page.of(name)
        for device, value in before.of(name).items():
            # Until the first look the accounts have nothing to show.
            if device in after and after[device] < value - allowed:
                yield f"{name} of {device} fell over a restart from {value} to {after[device]}"

    def _is_another(self, pairs: frozenset[tuple[str, str]], value: float, passed: float) -> bool:
        """Whether a series is that of another pod: without a uid each that comes is a new one.

        What the one before had is told of no more. No counter of a container grows by more than
        the power in a second.
        """
        labels = dict(pairs)
        if labels.get("pod_uid") != "" or value > WATTS * (passed + SLACK):
            return False
        self._forgotten.add(labels["UUID"])
        return True

    def _identities(self, page: Page) -> Iterator[str]:
        accounted = page.of(f"{_DEVICE}accounted_seconds_total")
        no_one = page.of(f"{_DEVICE}unattributed_held_seconds_total")
        free = page.of(f"{_DEVICE}free_seconds_total")
        unknown = page.of(f"{_DEVICE}unknown_held_seconds_total")
        held = page.of(_HELD)
        shown = {(page.life, pairs) for (name, pairs), _ in page.values.items() if name == _HELD}
        for _, pairs in self._containers - shown:
            self._forgotten.add(dict(pairs)["UUID"])  # its part is told of no more
        self._containers = shown | self._containers
        for device, whole in accounted.items():
            parts = held.get(device, 0) + no_one.get(device, 0)
            if parts > whole + 1e-6 or (device not in self._forgotten and parts < whole - 1e-6):
                yield f"{device}: accounted {whole}, and parts come to {parts}"
            rest = free.get(device, 0) + unknown.get(device, 0)
            if abs(rest - no_one.get(device, 0)) > 1e-6:
                yield f"{device}: unattributed {no_one.get(device)}, free and unknown {rest}"

    def _points(self, page: Page) -> Iterator[str]:
        for sink in self.world.receivers:
            family = partial(page.of_sink, sink)
            if not family("produced_total"):
                continue
            had = _total(family("produced_total")) + _total(family("recovered_total"))
            lost = {
                reason: count
                for reason, count in family("dropped_total").items()
                if reason not in _MISSED
            }
            done = _total(family("emitted_total")) + _total(family("rejected_total"))
            came = done + _total(lost) + _total(family("queued"))
            if had != came:
                yield f"points of {sink}: {had:g} there were, {came:g} are accounted for"


def _total(values: dict[str, float]) -> float:
    return sum(values.values())


def _parsed(path: Path) -> object:
    text = path.read_text()
    if not text.endswith("\n"):
        raise ValueError("half a line at its end")
    return list(text_string_to_metric_families(text))
