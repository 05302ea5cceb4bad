"""The demo's sample data: all sums are exact, and everything that a ledger can show occurs."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.ledger.file_open import open_readonly
from pipeline.ledger.queries import HoldingRecord, read_holdings, read_hours
from pipeline.ledger.reports import GroupBy, Prices, build_report
from pipeline.ledger.schema import HOUR_NS
from pipeline.ledger.writer_open import open_readwrite, read_stored_state
from pipeline.model.ledger_usage import UsageWindow
from podgpu.cli.demo.recorded_node import read_node
from podgpu.cli.demo.sample_usage import sample_batch
from podgpu.cli.demo.workloads import DAYS, WORKLOADS, Present
from sources.replay.options import DEMO, recording_path
from tests.pipeline.ledger.open_ledger import FOREVER, assert_adds_up, query, window_of
from tests.podgpu.cli.demo.sample_nodes import (
    GPUS,
    HELD_NS,
    INSTANCES,
    NODE,
    NOW,
    TRAINING,
    written,
)

DAY_NS = 24 * HOUR_NS


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("demo") / "demo.db")


@pytest.fixture(scope="module")
def window(ledger: Path) -> UsageWindow:
    return window_of(ledger)


@pytest.fixture(scope="module")
def holdings(ledger: Path) -> tuple[HoldingRecord, ...]:
    with closing(open_readonly(ledger)) as connection:
        return read_holdings(connection, 0, FOREVER, 10_000)


def test_the_sums_of_each_hour_are_exact(ledger: Path) -> None:
    assert_adds_up(window_of(ledger))
    hours = "SELECT hour FROM device_hours GROUP BY hour"
    for (hour,) in query(ledger, hours)[::50]:
        start_ns = int(str(hour)) * HOUR_NS
        assert_adds_up(window_of(ledger, start_ns, start_ns + HOUR_NS))


def test_each_device_has_all_of_the_time_and_never_more(ledger: Path, window: UsageWindow) -> None:
    whole = [one for one in window.totals if one.device != GPUS[4].uuid]
    assert len(whole) == 7 + len(INSTANCES)
    assert {one.accounted_ns + one.gap_ns for one in whole} == {DAYS * DAY_NS}
    (parent,) = [one for one in window.totals if one.device == GPUS[4].uuid]
    assert (parent.accounted_ns, parent.gap_ns, parent.busy_ns) == (0, 0, None)
    hours = query(ledger, "SELECT accounted_ns + gap_ns, busy_ns, accounted_ns FROM device_hours")
    for length, busy, counted in hours:
        assert isinstance(length, int)
        assert isinstance(counted, int)
        assert length <= HOUR_NS
        assert busy is None or (isinstance(busy, int) and busy <= counted)


def test_every_hour_of_four_weeks_up_to_now_is_there(ledger: Path, window: UsageWindow) -> None:
    assert window.end_ns == NOW.wall_ns
    with closing(open_readonly(ledger)) as connection:
        hours = read_hours(connection, 0, FOREVER)
    first, last = (NOW.wall_ns - DAYS * DAY_NS) // HOUR_NS, NOW.wall_ns // HOUR_NS
    assert [one.start_ns // HOUR_NS for one in hours] == list(range(first, last + 1))


def test_the_data_has_all_that_a_report_can_show(
    window: UsageWindow, holdings: tuple[HoldingRecord, ...]
) -> None:
    report = build_report(window, GroupBy("namespace"), Prices())
    namespaces = {row.key.name for row in report.rows if row.key is not None}
    assert namespaces == {each.name.partition("/")[0] for each in WORKLOADS}
    assert report.total.free_ns > 0
    assert report.total.unknown_ns > 0
    assert {gap.reason for gap in window.gaps} == {"down", "blind"}
    assert {code for one in holdings for code, _ in one.xids} >= {31, 79}
    lengths = [one.counted_ns for one in holdings if one.container.subject.container == "task"]
    assert lengths
    assert max(lengths) < 10**9
    assert any(one.held_ns < one.counted_ns for one in holdings if one.held_ns), "a shared GPU"
    assert any(not one.source and not one.held_ns and one.busy_ns for one in holdings)
    assert any(one.end_ns is None for one in holdings)


def test_people_use_services_more_in_the_afternoon_of_a_working_day(ledger: Path) -> None:
    text = (
        "SELECT hour, sum(busy_ns) FROM hours AS h JOIN containers AS c ON c.id = h.container "
        "WHERE c.pod LIKE 'assistant-%' GROUP BY hour"
    )
    busy = {int(str(hour)): int(str(amount)) for hour, amount in query(ledger, text)}
    friday = (NOW.wall_ns // DAY_NS - 3) * 24
    assert busy[friday + 14] > 2 * busy[friday + 2]
    assert busy[friday + 14] > 1.5 * busy[friday + 24 + 14]


@pytest.mark.slow
def test_the_accounts_continue_with_the_pods_of_the_recording(tmp_path: Path) -> None:
    path = written(tmp_path / "demo.db")
    with closing(open_readwrite(path, "normal")) as connection:
        stored = read_stored_state(connection, str(path))
    assert stored.invalid == 0
    assert set(stored.accounts) == {one.uuid for one in NODE.devices}
    (training,) = stored.accounts[GPUS[0].uuid].containers
    assert (training.subject.uid, training.pod) == (TRAINING.uid, TRAINING)
    held = [one for account in stored.accounts.values() for one in account.containers]
    assert {one.holding.id for one in held if one.holding} == set(stored.open_holdings)
    assert training.start.wall_ns == NOW.wall_ns - HELD_NS
    assert {one.at for one in stored.accounts.values()} == {NOW}


@pytest.mark.slow
def test_the_same_moment_gives_the_same_data() -> None:
    one, other = sample_batch(NODE, NOW), sample_batch(NODE, NOW)
    assert one.hours == other.hours
    assert one.states == other.states
    assert one.holdings == other.holdings


def test_a_workload_of_a_device_that_the_node_lacks_has_no_rows() -> None:
    batch = sample_batch(replace(NODE, devices=GPUS[:2]), NOW)
    assert set(batch.states) == {GPUS[0].uuid, GPUS[1].uuid}
    assert {pod.namespace for pod in batch.pods} == {"research"}


def test_a_pod_of_the_recording_follows_the_earlier_pods_of_its_devices(
    holdings: tuple[HoldingRecord, ...],
) -> None:
    on_first = [one for one in holdings if one.device == GPUS[0].uuid]
    present, earlier, *_ = on_first
    assert (present.container.subject.pod, present.end_ns) == ("llama-train-0", None)
    assert earlier.container.subject.pod == "llama-sweep-0"
    assert earlier.end_ns is not None
    assert 0 < present.start_ns - earlier.end_ns < 60 * 10**9


def test_pods_that_share_a_gpu_keep_it_busy_for_at_most_all_of_the_time(ledger: Path) -> None:
    text = "SELECT hour, device, sum(busy_ns) FROM hours GROUP BY hour, device"
    assert all(busy is None or int(str(busy)) <= HOUR_NS for _, _, busy in query(ledger, text))


def test_the_shipped_recording_has_every_device_and_every_present_pod_of_the_table() -> None:
    node = read_node(recording_path(DEMO))
    for workload in WORKLOADS:
        assert all(node.device(place) is not None for place in workload.places), workload.name
        if isinstance(workload.runs, Present):
            namespace, pod, _ = workload.name.split("/")
            assert (namespace, pod) in node.ages
    assert node.name == "demo"


def test_a_present_pod_has_the_owner_that_the_recording_says() -> None:
    node = read_node(recording_path(DEMO))
    for workload in WORKLOADS:
        namespace, pod, _ = workload.name.split("/")
        if found := node.pods.get((namespace, pod)):
            owner = f"{found.owner_kind}/{found.owner_name}" if found.owner_kind else ""
            assert workload.owner == owner, workload.name
