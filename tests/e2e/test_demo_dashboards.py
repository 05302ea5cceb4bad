"""The dashboards show what is on the page of `podgpu demo`: every panel, and values that are known.

The demo plays for about a minute: the pods of `tests/demo` are known, and after 45 seconds a GPU
that two pods share has the XID error 79 and is lost for 40 seconds.
"""

import math
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.dashboards import FILES
from tests.deploy.drawing.board import board
from tests.deploy.drawing.tables import rows
from tests.e2e.dashboard_viewer import Viewer
from tests.e2e.demo_dashboards import Demo, demo
from tests.e2e.processes import wait_until
from tests.e2e.promql import Series

pytestmark = [pytest.mark.alone, pytest.mark.timeout(360)]

PLAYED = 65
"""Seconds, after which the GPU is lost. On a busy machine it is the next time, 210 s later."""

EMPTY = {
    "fleet: GPUs held and free: C",  # all holders are known
    "fleet: GPUs that need attention: C",  # no remapping has failed
    "pods: Idle devices by namespace: A",  # a device is idle only if none of its holders uses it
    "node: Duration of a round of readings: A",  # replay takes no readings
}
"""Queries without a result in the demo."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What the dashboards and the page show at one time."""

    viewers: Mapping[str, Viewer]
    first: Mapping[str, float]
    last: Mapping[str, float]
    """Sums of counters on the page, early and at the end."""
    seconds: float
    """Seconds between these two pages."""
    page: str

    def panel(self, name: str, title: str) -> Mapping[str, Any]:
        """Return a panel."""
        return next(each for each in self.viewers[name].panels() if each["title"] == title)

    def results(self, name: str, title: str) -> Mapping[str, Any]:
        """Return the results of a panel's queries by refId."""
        return self.viewers[name].shows(self.panel(name, title)).results

    def table(self, name: str, title: str) -> list[dict[str, Any]]:
        """Return the rows of a table as they are shown."""
        return [dict(row) for row in rows(self.panel(name, title), self.results(name, title))]


def sums(page: str) -> dict[str, float]:
    """Return the sum of each usage counter of a page."""
    found: dict[str, float] = {}
    for name, value in re.findall(
        r"^(podgpu_(?:container|device)_\w+_total)\{.*\} (\S+)$", page, re.M
    ):
        found[name] = found.get(name, 0) + float(value)
    return found


@pytest.fixture(scope="module")
def moment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moment]:
    with demo(tmp_path_factory.mktemp("demo")) as running:
        wait_until(lambda: running.query("podgpu_container_held_seconds_total"), "usage")
        # Until the first evaluation of the rules has samples before it.
        time.sleep(25)
        early, first = time.time(), sums(running.page())
        time.sleep(max(running.begun + PLAYED - time.time(), 10))
        wait_until(lambda: lost(running), "the lost GPU", seconds=240)
        end = time.time()
        page = running.page()
        viewers = {name: running.viewer(name, end) for name in FILES}
        yield Moment(viewers, first, sums(page), end - early, page)


def lost(running: Demo) -> list[Series]:
    """Return the GPUs that do not respond, once the XID error is counted."""
    return running.query(
        'podgpu_gpu_up == 0 and on (UUID) podgpu_container_xid_errors_total{xid="79"}'
    )


def test_every_query_has_a_result(moment: Moment) -> None:
    empty = {
        f"{name}: {panel['title']}: {ref}"
        for name, viewer in moment.viewers.items()
        for panel in viewer.panels()
        for ref, found in viewer.shows(panel).results.items()
        if not found
    }
    assert empty - {f"node: NVLink: {ref}" for ref in "AB"} == EMPTY


# Dashboard, panel and query; the lowest and highest value by labels, of which all are in the
# result. The part of each pod follows from its program (tests/demo/cast.py).
RANGES: Mapping[tuple[str, str, str], Mapping[tuple[str, ...], tuple[float, float]]] = {
    ("fleet", "GPUs", "A"): {(): (7, 7)},
    ("fleet", "GPUs", "B"): {(): (8, 8)},
    ("fleet", "GPUs held", "A"): {(): (0.875, 0.875)},
    ("fleet", "GPUs down and their holders", "A"): {("eval-0",): (1, 1), ("finetune-0",): (1, 1)},
    ("fleet", "GPUs that need attention", "A"): {("7",): (1, 4)},
    ("fleet", "GPUs that need attention", "B"): {("7",): (1, 1)},
    ("fleet", "GPUs that need attention", "D"): {("6",): (1, 1)},
    ("fleet", "GPUs by model", "A"): {(): (1, 4)},
    ("node", "GPUs up and down", "A"): {("5",): (0, 0), ("4",): (1, 1)},
    ("node", "Busy time by container", "A"): {
        ("assistant-0",): (0.1, 0.8),
        ("embeddings-0",): (0.01, 0.4),
        ("scratch-0",): (0, 0.03),
        ("debug-shell",): (0.0001, 0.3),
    },
    ("node", "Memory by container", "A"): {("scratch-0",): (1e9, 1e11)},
    ("pods", "Shared devices", "A"): {(): (2, 3)},
    ("pods", "Conflicts", "A"): {(): (1, 1)},
    ("pods", "Containers on devices", "A"): {
        ("llama-train-0", "0"): (0.99, 1.01),
        ("llama-train-0", "1"): (0.99, 1.01),
        ("assistant-0",): (0.33, 0.34),
        ("eval-0",): (0.49, 0.51),
        ("debug-shell",): (0, 0),
    },
}


@pytest.mark.parametrize("where", list(RANGES), ids=": ".join)
def test_values_are_in_their_ranges(moment: Moment, where: tuple[str, str, str]) -> None:
    name, title, ref = where
    found = moment.results(name, title)[ref]
    for labels, (least, most) in RANGES[where].items():
        values = [each.value for each in found if set(labels) <= set(each.labels.values())]
        assert values, (labels, found)
        assert all(least <= value <= most for value in values), (labels, values)


def test_memory_by_container_is_that_of_the_page(moment: Moment) -> None:
    pattern = r'^podgpu_container_memory_used_bytes\{.*pod="([^"]+)".*\} (\d+)'
    on_page = sorted(re.findall(pattern, moment.page, re.M))
    shown = [
        (each.labels["pod"], f"{each.value:.0f}")
        for each in moment.results("pods", "Memory by container")["A"]
    ]
    present = {pod for pod, _ in on_page}
    assert sorted(each for each in shown if each[0] in present) == on_page


def test_states_of_devices_add_up_to_all_devices(moment: Moment) -> None:
    """Less a device that is lost for a part of the time, and more for use without holders."""
    results = moment.results("fleet", "GPUs busy, idle and free").values()
    devices = len(re.findall("^podgpu_device_accounted_seconds_total", moment.page, re.M))
    assert devices - 1.5 <= sum(found[0].value for found in results) <= devices + 0.5


VICTIMS = {("research", "eval-0", "eval"), ("research", "finetune-0", "trainer")}


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("fleet", "XID errors within the time shown"),
        ("node", "XID errors by container"),
        ("pods", "XID errors by container"),
    ],
)
def test_xid_errors_name_the_affected_containers_and_the_action(
    moment: Moment, name: str, title: str
) -> None:
    listed = moment.table(name, title)
    affected = {
        (row["Namespace"], row["Pod"], row["Container"]) for row in listed if row["XID"] == "79"
    }
    assert affected == VICTIMS
    for row in listed:
        assert row["GPU"] == "5"
        assert row["Meaning"]
        assert row["Advised action"] == {"79": "reboot_node", "31": "restart_app"}[row["XID"]]


@pytest.mark.parametrize("name", ["fleet", "node", "pods"])
def test_marks_name_the_affected_containers(moment: Moment, name: str) -> None:
    words = {mark.text for mark in moment.viewers[name].marks if "XID 79" in mark.text}
    assert words == {
        f"XID 79: {namespace}/{pod}; GPU 5 of demo, {container}"
        for namespace, pod, container in VICTIMS
    }


GROWN = {
    "Held": ("accounted", "-free", "-unknown_held"),
    "Busy": ("busy",),
    "Free": ("free",),
    "Unattributed": ("unattributed_busy",),
}


@pytest.mark.parametrize("title", list(GROWN))
def test_recorded_hours_are_what_the_page_has_counted(moment: Moment, title: str) -> None:
    """Within the time by which windows and pages differ."""

    def growth(name: str) -> float:
        metric = f"podgpu_device_{name.removeprefix('-')}_seconds_total"
        grew = moment.last[metric] - moment.first[metric]
        return -grew if name.startswith("-") else grew

    expected = sum(map(growth, GROWN[title])) / 3600
    (found,) = moment.results("usage", title)["A"]
    # At most 25 seconds of eight GPUs and two instances more or less.
    assert found.value == pytest.approx(expected, abs=25 * 10 / 3600)
    assert expected >= 0


def test_hours_by_namespace_and_workload_add_up(moment: Moment) -> None:
    """To those of the containers; the price of a GPU hour is 1."""
    namespaces = moment.table("usage", "Namespaces")
    workloads = moment.table("usage", "Workloads")
    for column in ("Held hours", "Busy hours", "Energy"):
        total = sum(row.get(column, 0) for row in namespaces)
        assert total > 0
        assert total == pytest.approx(sum(row.get(column, 0) for row in workloads))
    for row in namespaces:
        # A MIG instance costs less than the device that it counts for.
        assert row["Cost"] <= row["Held hours"] + 1e-9
        assert row["Idle hours"] == pytest.approx(row["Held hours"] - row["Busy hours"])
    assert {"research", "chat", "notebooks"} <= {row["Namespace"] for row in namespaces}


@pytest.mark.parametrize("name", list(FILES))
def test_every_panel_is_drawn(moment: Moment, name: str, tmp_path: Path) -> None:
    """With its title, and without a value that is not a number."""
    viewer = moment.viewers[name]
    drawn = board(viewer.dashboard, viewer.shows, viewer.values)
    (tmp_path / f"{name}.svg").write_text(drawn)
    for panel in viewer.panels():
        assert panel["title"].split(",")[0] in drawn
    assert not re.search(r'="(nan|inf|-inf)"', drawn)
    assert not any(math.isnan(float(each)) for each in re.findall(r' [xy]="([^"]+)"', drawn))
