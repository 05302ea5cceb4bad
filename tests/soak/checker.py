"""Check podgpu once a second, and record all errors."""

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
from tests.soak.world import PASSWORD, SAMPLE_INTERVAL, USER, WATTS, World, podlist_of

ANSWER: Final = 5.0
"""Seconds for a response, on a machine that is busy with the clients too."""

SETTLED: Final = 15.0
"""Seconds after a start or after a fault without responses until podgpu must respond again."""

SLACK: Final = 3.0
"""Seconds by which the accounts may decrease after SIGKILL, besides the unwritten part."""

_DEVICE: Final = "podgpu_device_"
_HELD: Final = "podgpu_container_held_seconds_total"
_OWN: Final = ("podgpu_", "process_cpu_")
_MISSED: Final = frozenset({"queue_full", "stopped", "not_finite", "doubled", "missed"})
"""Reasons for which readings are dropped before they are points."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The resource use of the process: MiB, and counts."""

    memory: float
    threads: int
    descriptors: int


@dataclass
class Page:
    """A metrics page from podgpu.

    Attributes:
        at: its time on the monotonic clock.
        run: the number of the run of podgpu.
        values: the values by name and labels.
    """

    at: float
    run: int
    values: Series
    counters: frozenset[str]

    def of(self, name: str) -> dict[str, float]:
        """Return the sums of a family by device."""
        found: dict[str, float] = {}
        for (each, pairs), value in self.values.items():
            if each == name:
                device = dict(pairs).get("UUID", "")
                found[device] = found.get(device, 0) + value
        return found

    def of_sink(self, sink: str, name: str) -> dict[str, float]:
        """Return the values of a family of a sink by reason."""
        return {
            dict(pairs).get("reason", ""): value
            for (each, pairs), value in self.values.items()
            if each == f"podgpu_sink_{name}" and dict(pairs).get("sink") == sink
        }


@dataclass
class Checker:
    """The thread that checks podgpu.

    Attributes:
        world: podgpu and its environment.
        wrong: the errors.
        pages: the number of received pages.
        slowest: the duration of the slowest response in seconds.
        most: the highest resource use of the process.
        unresponsive: the number of current faults during which podgpu need not respond.
        excused_until: until when else podgpu need not respond.
        account_start: the start of the account of each device, on the monotonic clock.
        last: the previous page.
        over: whether podgpu has ended unexpectedly.
    """

    world: World
    wrong: list[str] = field(default_factory=list)
    pages: int = 0
    slowest: float = 0.0
    most: Figures = field(default_factory=lambda: Figures(0, 0, 0))
    unresponsive: int = 0
    excused_until: float = 0.0
    account_start: dict[str, float] = field(default_factory=dict)
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
        return self.unresponsive > 0 or time.monotonic() < self.excused_until

    def begin_unresponsive(self) -> None:
        """Accept that podgpu does not respond until some seconds after `end_unresponsive`."""
        self.unresponsive += 1

    def end_unresponsive(self) -> None:
        self.excused_until = time.monotonic() + SETTLED
        self.unresponsive -= 1

    # A check of podgpu.

    def _run(self) -> None:
        while not self._stop.wait(1.0):
            try:
                self._check()
            except Exception as error:  # noqa: BLE001 - any exception is an error
                self.note(f"{type(error).__name__}: {error}")

    def _check(self) -> None:
        excused = self.excused()
        with self.world.lock:
            run = len(self.world.runs)
            running = self.world.process.running
            over = self.world.runs[-1].ended > 0  # it was ended intentionally
        if not running:
            if not over and not self.over:
                self.over = True
                self.note(f"podgpu has ended:\n{self.world.log_text()[-4000:]}")
            return
        start = time.monotonic()
        page = self.scrape(run)
        healthy = self.get("/healthz") if page is not None else None
        took = time.monotonic() - start
        self._files()
        if page is None or healthy is None:
            if not excused and not self.excused():
                self.note(f"no response within {took:.1f} s")
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
            self.account_start.setdefault(device, page.at - seconds)
        for check in (self._counters, self._identities, self._points):
            for text in check(page):
                self.note(text)
        self.last = page

    def figures(self) -> Figures | None:
        """Return the current resource use of the process; None if it does not run."""
        pid = self.world.process.pid
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            status = dict(line.split(":", 1) for line in lines)
            count = len(list(Path(f"/proc/{pid}/fd").iterdir()))
            return Figures(int(status["VmRSS"].split()[0]) / 1024, int(status["Threads"]), count)
        except (OSError, KeyError):
            return None

    def get(self, path: str) -> bytes | None:
        """Send a GET request with or without TLS; return None if there is no response in time."""
        credentials = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        for secure in (False, True, False):  # TLS may be switched between two attempts
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
                connection.request("GET", path, headers={"Authorization": f"Basic {credentials}"})
                answer = connection.getresponse()
                body = answer.read()
            except (OSError, http.client.HTTPException):
                continue
            finally:
                connection.close()
            if answer.status == 200:
                return body
        return None

    def scrape(self, run: int) -> Page | None:
        body = self.get("/metrics")
        if body is None:
            return None
        values: Series = {}
        counters: set[str] = set()
        for family in text_string_to_metric_families(body.decode()):
            for sample in family.samples:
                key = sample.name, frozenset(sample.labels.items())
                if key in values:
                    self.note(f"duplicate series on a page: {sample.name} {sample.labels}")
                values[key] = sample.value
                if family.type == "counter" and sample.name.startswith(_OWN):
                    counters.add(sample.name)
        return Page(time.monotonic(), run, values, frozenset(counters))

    def _files(self) -> None:
        """Check that the files for other programs are complete at any time."""
        disk = self.world.disk
        for path, read in ((disk / "page.prom", _parsed), (disk / "podlist.json", podlist_of)):
            try:
                read(path)
            except FileNotFoundError:
                continue
            except Exception as error:  # noqa: BLE001 - an unreadable file is incomplete
                self.note(f"{path.name} is not complete: {error}")

    # The checks of a page.

    def _counters(self, page: Page) -> Iterator[str]:
        before = self.last
        if before is None:
            return
        if before.run == page.run:
            for key in before.values.keys() & page.values.keys():
                if key[0] in page.counters and page.values[key] < before.values[key]:
                    if self._is_another_pod(key[1], page.values[key], page.at - before.at):
                        continue
                    yield f"decreased: {key} from {before.values[key]} to {page.values[key]}"
            return
        ended = self.world.runs[before.run - 1 : page.run - 1]
        if any(run.disk_full for run in self.world.runs[before.run - 1 : page.run]):
            return  # accounts could not be written, or not restored at the start
        allowed = sum(2 * SAMPLE_INTERVAL + SLACK for run in ended if run.killed)
        name = f"{_DEVICE}accounted_seconds_total"
        after = page.of(name)
        for device, value in before.of(name).items():
            # The accounts are empty until the first usage sample.
            if device in after and after[device] < value - allowed:
                yield f"{name} of {device} decreased over a restart from {value} to {after[device]}"

    def _is_another_pod(
        self, pairs: frozenset[tuple[str, str]], value: float, passed: float
    ) -> bool:
        """Return whether a series belongs to another pod: without a UID each pod is a new one.

        The amounts of the previous pod are not exposed any more. No counter of a container
        grows by more than the power in a second.
        """
        labels = dict(pairs)
        if labels.get("pod_uid") != "" or value > WATTS * (passed + SLACK):
            return False
        self._forgotten.add(labels["UUID"])
        return True

    def _identities(self, page: Page) -> Iterator[str]:
        accounted = page.of(f"{_DEVICE}accounted_seconds_total")
        unattributed = page.of(f"{_DEVICE}unattributed_held_seconds_total")
        free = page.of(f"{_DEVICE}free_seconds_total")
        unknown = page.of(f"{_DEVICE}unknown_held_seconds_total")
        held = page.of(_HELD)
        shown = {(page.run, pairs) for (name, pairs), _ in page.values.items() if name == _HELD}
        for _, pairs in self._containers - shown:
            self._forgotten.add(dict(pairs)["UUID"])  # its amounts are not exposed any more
        self._containers = shown | self._containers
        for device, whole in accounted.items():
            parts = held.get(device, 0) + unattributed.get(device, 0)
            if parts > whole + 1e-6 or (device not in self._forgotten and parts < whole - 1e-6):
                yield f"{device}: accounted {whole}, and the parts sum to {parts}"
            rest = free.get(device, 0) + unknown.get(device, 0)
            if abs(rest - unattributed.get(device, 0)) > 1e-6:
                yield f"{device}: unattributed {unattributed.get(device)}, free and unknown {rest}"

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
            counted = done + _total(lost) + _total(family("queued"))
            if had != counted:
                yield f"points of {sink}: {had:g} exist, {counted:g} are accounted for"


def _total(values: dict[str, float]) -> float:
    return sum(values.values())


def _parsed(path: Path) -> object:
    text = path.read_text()
    if not text.endswith("\n"):
        raise ValueError("the last line is incomplete")
    return list(text_string_to_metric_families(text))
