"""`podgpu usage --prometheus` with a real Prometheus 3 and a real VictoriaMetrics.

The servers have three hours of short pods, restarts and a scrape gap, backfilled. The ledger of the
same three hours is the truth. The table of docs/prometheus-reports.md has the differences.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.places import DOCS
from tests.e2e.played_usage import HOURS, START, UNSCRAPED, PlayedUsage, play
from tests.e2e.processes import get
from tests.e2e.promql import QueriedPrometheus
from tests.e2e.test_recording_rules import RULES
from tests.e2e.usage_servers import (
    load_prometheus,
    prometheus,
    record_prometheus,
    victoria_metrics,
)

pytestmark = pytest.mark.more

PAGE = DOCS / "prometheus-reports.md"
NAMESPACES = ("ml", "web", "lab", "batch")
SPAN = ("--since", "2025-01-15T08:00", "--until", "2025-01-15T11:00")
BEFORE, AFTER = 600, 1800
"""Seconds before and after the data for which rules are evaluated."""


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> PlayedUsage:
    return play(tmp_path_factory.mktemp("played"))


def report(*words: str | Path) -> tuple[Mapping[str, Any], str]:
    """Return the document of `podgpu usage`, and what it prints on stderr."""
    command = [sys.executable, "-m", "podgpu", "usage", "--format", "json", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@dataclass(frozen=True, slots=True)
class Held:
    """Held seconds by namespace, and free, unknown and all seconds."""

    by_namespace: Mapping[str, float]
    free: float
    unknown: float

    @property
    def total(self) -> float:
        return sum(self.by_namespace.values()) + self.free + self.unknown


def held(document: Mapping[str, Any]) -> Held:
    rows = {row["namespace"]: row["held_seconds"] for row in document["rows"]}
    return Held(rows, document["total"]["free_seconds"], document["total"]["unknown_seconds"])


@pytest.fixture(scope="module")
def truth(played: PlayedUsage) -> Held:
    document, _ = report("--ledger", played.ledger, *SPAN)
    found = held(document)
    assert set(found.by_namespace) == set(NAMESPACES)
    return found


@contextmanager
def served(kind: str, folder: Path, samples: str, *, rules: bool) -> Iterator[str]:
    """Run a server with samples, and with the recording rules over them; yield its address."""
    start, end = START - BEFORE, START + HOURS * 3600 + AFTER
    if kind == "VictoriaMetrics":
        with victoria_metrics(folder) as server:
            server.load(samples)
            if rules:
                server.record(RULES, start, end)
            yield server.url
        return
    load_prometheus(folder, samples)
    if rules:
        record_prometheus(folder, RULES, start, end)
    with prometheus(folder) as prometheus_server:
        yield prometheus_server.url


KINDS = ("Prometheus 3", "VictoriaMetrics")

measured: dict[str, Held] = {}
"""What each server reported, for the table."""

INCREASE = {
    "by_namespace": "sum by (namespace) (increase(podgpu_container_held_seconds_total[3h]))",
    "free": "sum(increase(podgpu_device_free_seconds_total[3h]))",
}


WHATS = ("counters", "counters, no ledger", "records", "records, no ledger")


@pytest.mark.parametrize("what", WHATS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_server_reports_what_the_ledger_has(
    kind: str, what: str, played: PlayedUsage, truth: Held, tmp_path: Path
) -> None:
    rules, ledger = what.startswith("records"), "no ledger" not in what
    samples = played if ledger else played.without_ledger()
    with served(kind, tmp_path, samples.text(), rules=rules) as url:
        document, notes = report("--prometheus", url, *SPAN)
        by_device, _ = report("--prometheus", url, *SPAN, "--by", "device")
        by_pod, _ = report("--prometheus", url, *SPAN, "--by", "pod")
    found = held(document)
    measured[f"{kind}, {what}"] = found
    print(kind, what, found, truth, notes)
    level = "sums of hours" if rules else "podgpu's counters"
    assert f"{HOURS} h from {level}\n" in notes
    # A server counts nothing that did not happen.
    for namespace, seconds in found.by_namespace.items():
        assert seconds <= truth.by_namespace[namespace] + 1e-3, namespace
    # What the server missed: its own gap, and what podgpu counted before the first scrape.
    edges = 0 if ledger else 3 * 300
    late = 300 if rules else 0
    assert truth.total - found.total <= 2 * (7 + 30 + late) + 2 * edges
    lost = sum(truth.by_namespace.values()) - sum(found.by_namespace.values())
    assert lost <= found.unknown + 2 * (7 + 30 + late) + 2 * edges
    # Each grouping has the same total.
    for other in (by_device, by_pod):
        for key in ("held_seconds", "free_seconds", "unknown_seconds"):
            assert other["total"][key] == pytest.approx(document["total"][key], abs=late + 0.01)
    gap = UNSCRAPED[1] - UNSCRAPED[0]
    assert found.unknown <= gap


def test_increase_loses_short_pods(played: PlayedUsage, truth: Held, tmp_path: Path) -> None:
    """This is why there are rules and a command."""
    load_prometheus(tmp_path, played.text())
    end = START + HOURS * 3600
    with prometheus(tmp_path) as server:
        found = {
            one.labels["namespace"]: one.value
            for one in server.query(INCREASE["by_namespace"], end)
        }
        (free,) = server.query(INCREASE["free"], end)
    measured["Prometheus 3, `increase()` of three hours"] = Held(found, free.value, 0)
    print(found, free, truth)
    assert found["lab"] < truth.by_namespace["lab"] * 0.9


def test_rules_that_were_not_evaluated_for_a_while(
    played: PlayedUsage, truth: Held, tmp_path: Path
) -> None:
    """The hours without complete records are read from the counters."""
    first_end = START + 3600 + 20 * 60
    with victoria_metrics(tmp_path) as server:
        server.load(played.text())
        server.record(RULES, START - BEFORE, first_end)
        document, notes = report("--prometheus", server.url, *SPAN)
    assert "1 h from sums of hours, 2 h from podgpu's counters" in notes
    found = held(document)
    for namespace, seconds in found.by_namespace.items():
        assert seconds <= truth.by_namespace[namespace] + 1e-3
    assert truth.total - found.total <= 2 * (7 + 30 + 30)


def test_the_page_shows_this_report(played: PlayedUsage, tmp_path: Path) -> None:
    page = PAGE.read_text()
    command, _, shown = page.partition("```\n$ podgpu usage --prometheus ")[2].partition("\n")
    load_prometheus(tmp_path, played.text())
    with prometheus(tmp_path) as server:
        words = ["--prometheus", server.url, *command.split()[1:]]
        done = subprocess.run(
            [sys.executable, "-m", "podgpu", "usage", *words],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
    assert done.stdout == shown.partition("```")[0]


LIMITS = {
    "Prometheus 3": (
        "--query.max-samples=4000",
        r'prometheus_http_requests_total{code="422",handler="/api/v1/query"} (\d+)',
    ),
    "VictoriaMetrics": (
        "-search.maxSamplesPerQuery=4000",
        r'vm_http_request_errors_total{path="/api/v1/query"} (\d+)',
    ),
}
"""An option with a limit, and the metric that counts refused queries."""


@contextmanager
def limited(kind: str, folder: Path, *options: str) -> Iterator[QueriedPrometheus]:
    if kind == "VictoriaMetrics":
        with victoria_metrics(folder, *options) as server:
            yield server
        return
    with prometheus(folder, *options) as prometheus_server:
        yield prometheus_server


@pytest.mark.parametrize("kind", KINDS)
def test_a_span_is_divided_if_the_server_has_a_limit(
    kind: str, played: PlayedUsage, tmp_path: Path
) -> None:
    option, counter = LIMITS[kind]
    if kind == "VictoriaMetrics":
        with victoria_metrics(tmp_path) as server:
            server.load(played.text())
    else:
        load_prometheus(tmp_path, played.text())
    found = []
    for options in ((), (option,)):
        with limited(kind, tmp_path, *options) as limited_server:
            url = f"http://127.0.0.1:{limited_server.port}"
            found.append(held(report("--prometheus", url, *SPAN)[0]))
            page = get(limited_server.port, "/metrics").body.decode()
            refused = re.search(counter, page)
            assert bool(refused and int(refused[1])) == bool(options), refused
    assert found[0] == found[1]


def test_the_table_of_the_page_has_these_errors(truth: Held) -> None:
    """`PODGPU_WRITE_GOLDEN=1` writes it. It needs the results of the other tests."""
    if len(measured) < len(KINDS) * len(WHATS) + 1:
        pytest.skip("run all tests of this module")
    lines = [
        "| Held seconds | " + " | ".join([*NAMESPACES, "free", "unknown"]) + " |",
        "|---|" + "---|" * (len(NAMESPACES) + 2),
        _line("the ledger", truth, None),
        *(_line(name, found, truth) for name, found in measured.items()),
    ]
    table = "\n".join(lines)
    text = PAGE.read_text()
    old = re.search(r"\| Held seconds \|.*?\n(?=\n)", text, re.DOTALL)
    assert old is not None
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        PAGE.write_text(text.replace(old[0], f"{table}\n"))
    assert f"{table}\n" in PAGE.read_text()


def _line(name: str, found: Held, truth: Held | None) -> str:
    cells = []
    for namespace in NAMESPACES:
        seconds = found.by_namespace[namespace]
        cells.append(_cell(seconds, None if truth is None else truth.by_namespace[namespace]))
    cells.append(_cell(found.free, None if truth is None else truth.free))
    cells.append(f"{found.unknown:.0f}")
    return f"| {name} | {' | '.join(cells)} |"


def _cell(seconds: float, true: float | None) -> str:
    if true is None:
        return f"{seconds:.0f}"
    return f"{seconds:.0f} ({(seconds - true) / true * 100:+.1f} %)"
