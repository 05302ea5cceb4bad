"""A podgpu with a sink `otlp`, and its own counts of points."""

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.node import PODGPU
from tests.e2e.processes import Answer, Process, free_ports, get, wait_until

PLAYED: Final = {"kind": "replay", "path": "builtin:demo", "loop": True}
"""The built-in recording: about 650 points a second."""

_PREFIX: Final = "podgpu_sink_"
_MISSED: Final = ("queue_full", "stopped", "not_finite", "doubled", "missed")
_TAKEN_OVER: Final = "configuration reloaded"


@dataclass(frozen=True, slots=True)
class Account:
    """The counts of a sending sink since its start, from one scrape.

    Attributes:
        missed: readings that did not become points; podgpu counts them as dropped too.
    """

    produced: int
    recovered: int
    emitted: int
    rejected: Mapping[str, int]
    dropped: Mapping[str, int]
    missed: int
    queued: int
    queue_bytes: int
    oldest_age: float
    writable: bool
    delivering: bool

    @property
    def done(self) -> int:
        """Points that were emitted, rejected or dropped."""
        return self.emitted + sum(self.rejected.values()) + sum(self.dropped.values())

    def check(self) -> None:
        """Assert that every point is counted."""
        assert self.produced + self.recovered == self.done + self.queued, self


@dataclass(frozen=True, slots=True)
class Settings:
    """podgpu's configuration without the metrics page."""

    sinks: Mapping[str, Mapping[str, Any]]
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"node": PLAYED})
    more: Mapping[str, Any] = field(default_factory=dict)


def push(
    url: str,
    protocol: str = "grpc",
    *,
    queue: Path | None = None,
    size: str = "64MiB",
    **more: object,
) -> dict[str, Any]:
    """Return a sink `otlp` with short retry intervals.

    It sends no log records: the queue counts them like points.
    """
    kept = {"max_size": size} if queue is None else {"path": str(queue), "max_size": size}
    return {
        "kind": "otlp",
        "endpoint": url,
        "protocol": protocol,
        "queue": kept,
        "retry": {"initial": "100ms", "max": "1s"},
        "timeout": "5s",
        "logs": False,
        **more,
    }


class Pusher:
    """A podgpu with a metrics page and sending sinks; tests can kill and restart it."""

    def __init__(
        self, folder: Path, settings: Settings, env: Mapping[str, str] | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (self.port,) = free_ports(1)
        self.process: Process | None = None
        self._folder = folder
        self._env = {"LD_LIBRARY_PATH": "", **(env or {})}
        self._config = folder / "podgpu.yaml"
        self._settings = settings
        self._config.write_text(self._text())

    def _text(self) -> str:
        page = {"kind": "prometheus", "listen": f"127.0.0.1:{self.port}"}
        settings = self._settings
        return yaml.safe_dump(
            {
                "node": "gpu-node",
                "sources": {name: dict(options) for name, options in settings.sources.items()},
                "sinks": {"metrics": page, **settings.sinks},
                **settings.more,
            }
        )

    def reconfigure(self, sinks: Mapping[str, Mapping[str, Any]]) -> None:
        """Replace the sinks and wait until the change is in force."""
        before = self.output().count(_TAKEN_OVER)
        self._settings = replace(self._settings, sinks=sinks)
        new = self._config.with_suffix(".new")
        new.write_text(self._text())
        new.replace(self._config)
        wait_until(lambda: self.output().count(_TAKEN_OVER) > before, "the changed configuration")

    def start(self, *inside: str, wait: bool = True) -> None:
        """Start it.

        Args:
            inside: a command that starts it, such as `unshare`.
            wait: whether to wait until it responds.
        """
        assert self.process is None or not self.process.running
        self.process = Process(
            [*inside, PODGPU, "run", "-c", self._config], self._folder / "podgpu.log", self._env
        )
        if wait:
            self.process.wait_for_answer(self.port, "/healthz")

    def kill(self) -> None:
        """Kill it."""
        assert self.process is not None
        self.process.stop(signal.SIGKILL)

    def stop(self) -> None:
        assert self.process is not None
        assert self.process.stop() == 0, self.output()[-3000:]

    def output(self) -> str:
        return self.process.output() if self.process is not None else ""

    def get(self, path: str) -> Answer:
        return get(self.port, path)

    def account(self, sink: str = "otlp") -> Account | None:
        """Return the counts of a sink; None while there are none."""
        assert self.process is not None
        answer = self.process.answers(self.port, "/metrics")
        if answer is None:
            return None
        found = _of_sink(answer.body.decode(), sink)
        if "produced_total" not in found:
            return None
        dropped = _reasons(found, "dropped_total")
        missed = sum(dropped.pop(reason, 0) for reason in _MISSED)
        account = Account(
            produced=_one(found, "produced_total"),
            recovered=_one(found, "recovered_total"),
            emitted=_one(found, "emitted_total"),
            rejected=_reasons(found, "rejected_total"),
            dropped=dropped,
            missed=missed,
            queued=_one(found, "queued"),
            queue_bytes=_one(found, "queue_bytes"),
            oldest_age=sum(found["oldest_age_seconds"].values()),
            writable=_one(found, "queue_writable") == 1,
            # Absent before the first message.
            delivering=found.get("delivering", {}).get("") == 1,
        )
        account.check()
        return account

    def wait_account(self, sink: str = "otlp") -> Account:
        return wait_until(lambda: self.account(sink), "the sink's account")

    def wait_drained(self, sink: str = "otlp", seconds: float = 60) -> Account:
        """Wait until all points that are queued now are done; return the counts then."""
        now = self.wait_account(sink)

        def drained() -> Account | None:
            account = self.account(sink)
            if account is None or account.done < now.produced + now.recovered:
                return None
            return account

        return wait_until(drained, f"{now.queued} points to be sent", seconds, every=0.2)


def _of_sink(page: str, sink: str) -> dict[str, dict[str, float]]:
    """Return the metrics of a sink by name and reason."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name.startswith(_PREFIX) and sample.labels.get("sink") == sink:
                reasons = found.setdefault(sample.name.removeprefix(_PREFIX), {})
                reasons[sample.labels.get("reason", "")] = sample.value
    return found


def _one(found: Mapping[str, Mapping[str, float]], name: str) -> int:
    (value,) = found[name].values()
    return int(value)


def _reasons(found: Mapping[str, Mapping[str, float]], name: str) -> dict[str, int]:
    return {reason: int(value) for reason, value in found.get(name, {}).items() if value}


@contextmanager
def pushing(
    folder: Path,
    sinks: Mapping[str, Mapping[str, Any]],
    *,
    sources: Mapping[str, Mapping[str, Any]] | None = None,
    more: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    inside: Sequence[str] = (),
) -> Iterator[Pusher]:
    """Run a podgpu and stop it at the end."""
    settings = Settings(sinks, sources or {"node": PLAYED}, more or {})
    pusher = Pusher(folder, settings, env)
    try:
        pusher.start(*inside)
        yield pusher
    finally:
        if pusher.process is not None:
            pusher.process.stop()
        # pytest shows it if the test has failed.
        print(pusher.output()[-5000:])
