"""The usage of the last 24 hours, in the document and on the page."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings

from pipeline.model.ledger_usage import UsageRow, UsageWindow
from pipeline.status_page.device_status import MOST_DEVICES
from pipeline.status_page.document_builder import status_of
from pipeline.status_page.status_document import StatusDocument
from pipeline.status_page.usage_format import UsageStatus
from pipeline.status_page.usage_status import MOST_PODS
from tests.pipeline.ledger.reports.windows import (
    GPUS,
    HOUR,
    MODEL,
    identity,
    usage_row,
    window,
    windows,
)
from tests.pipeline.status_page.html_reader import Element, page, read, table
from tests.pipeline.status_page.last_days import DAYS, input_with, last_day, many, status_with
from tests.pipeline.status_page.scenes import HOSTILE
from tests.support.examples import examples
from tests.support.nodes import Node, gpu, mig


def used(name: str) -> UsageStatus:
    found = status_with(DAYS[name]).usage
    assert found is not None
    return found


def shown(name: str) -> Element:
    return read(page(status_with(DAYS[name]), ())).one("main")


def test_the_last_day_in_the_document() -> None:
    found = msgspec.to_builtins(used("a-day"))
    day = found.pop("day")
    assert (found["sink"], found["age_seconds"], found["error"]) == ("books", 20, None)
    assert (found["hours"], found["days"], found["sample_data"]) == ((), (), None)
    assert [each["uuid"] for each in day.pop("devices")] == ["GPU-0", "GPU-1"]
    assert day.pop("devices_left_out") == 0
    assert (day["since"], day["until"]) == ("2027-01-15T08:00:00Z", "2027-01-16T08:00:00Z")
    assert (day["accounted_seconds"], day["gap_seconds"]) == (171000.36, 1353)
    assert [each["pod"] for each in day["pods"]][:2] == ["train-0", "train-1"]
    assert day["pods"][0] == {
        "namespace": "ml",
        "pod": "train-0",
        "uid": "u-train-0",
        "held_seconds": 43200,
        "free_seconds": 0,
        "unknown_seconds": 0,
        "allocated_ratio": 0.252631,
        "used_ratio": 0.242105,
        "busy_seconds": 41400,
        "busy_error_seconds": None,
        "idle_seconds": 1800,
        "energy_joules": 26_100_000,
        "holdings": 2,
        "incomplete": False,
    }
    unknown = day["pods"][3]
    assert (unknown["uid"], unknown["busy_seconds"], unknown["idle_seconds"]) == ("u-1", None, None)
    assert (day["others"], day["pods_left_out"]) == (None, 0)
    unattributed, total = day["unattributed"], day["total"]
    assert (unattributed["held_seconds"], unattributed["free_seconds"]) == (0, 54900)
    times = [total[name] for name in ("held_seconds", "free_seconds", "unknown_seconds")]
    assert sum(times) == pytest.approx(day["accounted_seconds"])
    assert (total["allocated_ratio"], total["used_ratio"]) == (0.678948, 0.486737)
    assert day["total"]["incomplete"]


def test_the_last_day_on_the_page() -> None:
    assert table(shown("a-day"), "day") == [
        ["Pod", "Held", "Busy", "Idle", "Energy"],
        ["ml/train-0", "12.0 h", "11.5 h", "0.5 h", "7.25 kWh"],
        ["ml/train-1", "10.5 h", "9.8 h", "0.8 h", "6.12 kWh"],
        ["lab/notebook-7c9d5f6b4-x2x4z", "8.0 h", "1.2 min", "8.0 h", "1.00 kWh"],
        ["lab/shell (uid u-1)", "1.0 h", *["\N{EN DASH} unknown"] * 2, "0.250 kWh"],
        ["lab/shell (uid u-2)", "0.5 h", "0.2 h", "0.2 h", "0.125 kWh"],
        ["ml/greedy", "0.2 h", "1.0 h", "none", "0.500 kWh"],
        ["uid u-unnamed", "0.4 s", "0.2 s", "0.2 s", "<0.0001 kWh"],
        ["unattributed", "", "0.6 h", "", "2.75 kWh"],
        ["total *", "32.3 h", "23.1 h", "8.1 h", "18.0 kWh"],
    ]
    text = shown("a-day").text
    assert "2027-01-15 08:00 to 2027-01-16 08:00 UTC , as of 20 s ago." in text
    assert "Of 47.9 h of all devices, 0.4 h have no usage data." in text
    assert "* incomplete: a part of this value is unknown." in text
    assert "unknown: no source reported it in this time." in text
    assert "none: busy for longer than the held part of the time" in text


def by_device() -> UsageWindow:
    """A GPU that a pod held for 10 of 24 hours, a GPU with unknown holders and two instances, and a
    GPU that is gone. One of the instances was free.
    """
    one, two = (gpu(index).uuid for index in (0, 1))
    parent = gpu(1)
    held, free = (mig(parent, gi).uuid for gi in (1, 2))
    names = {held: f"{MODEL} 1g.10gb", free: f"{MODEL} 1g.10gb"}
    usage_window = window(
        [
            usage_row(one, identity("train-0"), 10, 5, 3),
            usage_row(one, None, 14, 1, 1),
            usage_row(two, None, 24, None, None),
            usage_row(held, identity("serve-0"), 24, 6, None),
            usage_row(free, None, 24, 0, None),
            usage_row("GPU-gone", None, 6, 0, 1),
        ],
        names=names,
    )
    unknown = {one: 4, two: 24}
    totals = [
        replace(total, unknown_ns=unknown.get(total.device, 0) * HOUR)
        for total in usage_window.totals
    ]
    return replace(usage_window, totals=tuple(totals))


def test_t25_every_device_has_a_row_with_held_free_and_unknown_time() -> None:
    node = Node()
    parent = gpu(1)
    node.has(gpu(0), parent, mig(parent, 1), mig(parent, 2))
    status = status_of(replace(input_with(last_day(by_device())), snapshot=node.snapshot()))
    assert status.usage is not None
    assert status.usage.day is not None
    rows = [msgspec.to_builtins(each) for each in status.usage.day.devices]
    one, two, held, free, gone = rows
    assert [each["uuid"] for each in rows][:2] == [gpu(0).uuid, parent.uuid]
    assert one == {
        "uuid": gpu(0).uuid,
        "name": MODEL,
        "held_seconds": 36000,
        "free_seconds": 36000,
        "unknown_seconds": 14400,
        "allocated_ratio": 0.5,
        "used_ratio": 0.25,
        "busy_seconds": 21600,
        "busy_error_seconds": 0,
        "idle_seconds": 14400,
        "energy_joules": 14_400_000,
        "holdings": 1,
        "incomplete": False,
    }
    assert (two["held_seconds"], two["free_seconds"], two["unknown_seconds"]) == (0, 0, 86400)
    assert (two["allocated_ratio"], two["used_ratio"]) == (None, None)
    assert (held["allocated_ratio"], held["used_ratio"]) == (1, 0.25)
    assert (free["free_seconds"], free["allocated_ratio"], free["used_ratio"]) == (86400, 0, 0)
    assert gone["uuid"] == "GPU-gone"
    unknown = "\N{EN DASH} unknown"
    cells = table(read(page(status, ())).one("main"), "cards")
    assert [row[0] for row in cells[1:4]] == [
        f"GPU 0 {MODEL} GPU-00000000",
        f"GPU 1 {MODEL} see its instances",
        "GPU 1 1g.10gb GI 1, CI 0",
    ]
    assert [cells[0], *(row[1:] for row in cells[1:])] == [
        ["Device", "Held", "Busy", "Idle", "Free", "Unknown", "Energy"],
        ["10.0 h", "6.0 h", "4.0 h", "10.0 h", "4.0 h", "4.00 kWh"],
        ["0.0 h", "", "", "0.0 h", "24.0 h", unknown],
        ["24.0 h", "6.0 h", "18.0 h", "0.0 h", "0.0 h", unknown],
        ["0.0 h", "0.0 h", "0.0 h", "24.0 h", "0.0 h", unknown],
        ["0.0 h", "0.0 h", "0.0 h", "6.0 h", "0.0 h", "1.00 kWh"],
    ]
    assert cells[5][0] == f"GPU-gone {MODEL}"


@pytest.mark.slow
def test_the_number_of_shown_devices_is_limited() -> None:
    usage_window = window(
        [usage_row(f"MIG-{number:04}", None, 1, 0, 1) for number in range(MOST_DEVICES + 2)]
    )
    status = status_with(last_day(usage_window))
    assert status.usage is not None
    assert status.usage.day is not None
    assert len(status.usage.day.devices) == MOST_DEVICES
    assert status.usage.day.devices_left_out == 2
    assert "2 more devices are not shown." in read(page(status, ())).one("main").text


def test_a_document_of_an_older_podgpu_without_devices_is_shown() -> None:
    old = msgspec.to_builtins(status_with(DAYS["a-day"]))
    assert old["usage"]["day"].pop("devices")
    del old["usage"]["day"]["devices_left_out"]
    read_back = msgspec.convert(old, StatusDocument)
    assert "By device" not in page(read_back, ())


def test_only_the_pods_that_held_the_most_have_a_row() -> None:
    rows = table(shown("many"), "day")[1:]
    assert len(rows) == MOST_PODS + 3
    assert rows[MOST_PODS] == ["2 other pods", "1.0 h", "1.0 h", "0.0 h", "2.00 kWh"]
    assert rows[-1][1] == "66.0 h"
    assert "All 69.0 h of all devices have usage data." in shown("many").text


def test_a_single_other_pod_is_singular() -> None:
    status = status_with(last_day(many(MOST_PODS + 1)))
    assert "1 other pod " in read(page(status, ())).one("main").text


def test_a_sum_of_other_pods_with_an_unknown_part_is_incomplete() -> None:
    every = [
        usage_row(GPUS[0], identity(f"p{n:02}"), 20 - n, None if n == 11 else 1, 1)
        for n in range(12)
    ]
    found = status_with(last_day(window(every))).usage
    assert found is not None
    assert found.day is not None
    assert found.day.others is not None
    assert (found.day.others.busy_seconds, found.day.others.incomplete) == (3600, True)


def test_an_unreadable_ledger_is_reported_and_its_last_usage_stays() -> None:
    text = shown("stale").text
    assert "The ledger books cannot be read now: /var/lib/podgpu/ledger.db: the disk" in text
    assert "ml/train-0" in text
    assert shown("unreadable").all("table", class_="day") == []
    assert "cannot be read now: /var/lib/podgpu/ledger.db: is not there" in shown("unreadable").text
    for name in ("stale", "unreadable"):
        assert len(table(shown(name), "gpus")) == 3, "the rest of the page is unchanged"


def test_before_the_first_response_the_page_says_that_the_ledger_is_read() -> None:
    assert "The ledger books is being read." in shown("not-read-yet").text


def test_a_ledger_without_data_for_the_day_has_no_totals() -> None:
    status = status_with(last_day(window([])))
    assert status.usage is not None
    assert (status.usage.age_seconds, status.usage.day) == (20, None)
    text = read(page(status, ())).one("main").text
    assert "The ledger books has no usage data for this time: the first figures" in text


def test_without_a_ledger_the_page_has_no_usage_section() -> None:
    status = status_with(None)
    assert status.usage is None
    assert "Last 24 hours" not in page(status, ())


def test_a_document_of_an_older_podgpu_without_usage_is_read() -> None:
    old = msgspec.to_builtins(status_with(None))
    del old["usage"]
    assert msgspec.convert(old, StatusDocument).usage is None


@pytest.mark.parametrize("name", DAYS)
def test_the_document_is_read_back_unchanged(name: str) -> None:
    status = status_with(DAYS[name])
    assert msgspec.json.decode(msgspec.json.encode(status), type=StatusDocument) == status


@pytest.mark.parametrize("kind", ["day", "cards"])
@pytest.mark.parametrize("name", DAYS)
def test_rows_and_cells_have_roles_and_labels(name: str, kind: str) -> None:
    for element in shown(name).all("table", class_=kind):
        columns = element.one("thead").all("th")
        for row in element.one("tbody").all("tr"):
            assert row.attributes["role"] == "row"
            assert row.one("th").attributes["scope"] == "row"
            cells = row.all("td")
            assert len(cells) == len(columns) - 1
            labels = [cell.attributes["data-l"] for cell in cells]
            assert labels == [column.text for column in columns[1:]]


def test_no_text_of_a_ledger_can_change_the_page() -> None:
    hostile = HOSTILE.replace("\ud800", "")
    owner = identity(hostile, hostile, uid=hostile)
    usage_window = window([usage_row(GPUS[0], owner, 1, 1, 1)])
    status = status_with(last_day(usage_window, hostile, hostile))
    text = page(status, ())
    assert "<script" not in text
    assert "\x1b" not in text
    assert "&lt;script&gt;" in text


@settings(max_examples=examples(50), deadline=None)
@given(windows)
def test_any_usage_can_be_shown(usage_window) -> None:  # type: ignore[no-untyped-def]
    status = status_with(last_day(usage_window))
    shown = read(page(status, ())).one("main").all("table", class_="day")
    assert bool(shown) == bool(usage_window.totals)
    assert msgspec.json.decode(msgspec.json.encode(status), type=StatusDocument) == status


def test_an_extremely_large_number_is_bounded() -> None:
    usage_window = window([UsageRow(GPUS[0], identity("a"), 10**40, 10**40, 10**40)])
    status = status_with(last_day(usage_window))
    assert msgspec.json.decode(msgspec.json.encode(status), type=StatusDocument) == status
