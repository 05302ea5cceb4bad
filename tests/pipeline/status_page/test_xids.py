"""XID errors in the status document and on the page."""

from typing import cast

import msgspec
import pytest

from pipeline.model import NS, Reading
from pipeline.status_page.document_builder import status_of
from pipeline.status_page.html.page import body
from pipeline.status_page.status_document import GpuStatus, StatusDocument
from pipeline.status_page.xid_status import MOST_XIDS
from tests.pipeline.status_page.html_reader import page, read, table
from tests.pipeline.status_page.scenes import NOW, status_input
from tests.support.nodes import Node, gpu, reading


def counted(code: object, count: float, place: int = 0) -> Reading:
    return reading(gpu(place), "xid_errors", count, attrs=(("xid", str(code)),), good_for=3600)


def seen(code: int, ago: float, place: int = 0) -> Reading:
    at = NOW.wall_ns / NS - ago
    field = "xid_last_seen_timestamp_seconds"
    return reading(gpu(place), field, at, attrs=(("xid", str(code)),), good_for=3600)


def status(*readings: Reading) -> StatusDocument:
    node = Node()
    node.has(gpu(0), gpu(1))
    node.reads(*readings)
    return status_of(status_input(node))


def errors(found: StatusDocument, place: int = 0) -> list[dict[str, object]]:
    gpus = cast(tuple[GpuStatus, ...], found.gpus)
    return [msgspec.to_builtins(one) for one in gpus[place].xids]


def test_each_error_has_its_description_and_action() -> None:
    found = status(counted(79, 2, place=1), seen(79, 120, place=1))
    assert errors(found) == []
    assert errors(found, 1) == [
        {
            "code": 79,
            "errors": 2,
            "last_seen": "2027-01-15T08:08:00Z",
            "meaning": "GPU has fallen off the bus",
            "action": "reboot_node",
        }
    ]


def test_a_counter_at_0_is_no_error() -> None:
    assert errors(status(counted(79, 0), counted(31, 0))) == []


def test_the_latest_error_comes_first() -> None:
    found = status(seen(31, 60), seen(94, 5), seen(48, 3600), counted(31, 1))
    assert [one["code"] for one in errors(found)] == [94, 31, 48]


def test_values_that_no_source_reports_are_null() -> None:
    found = status(counted(4711, 1))
    assert errors(found) == [
        {"code": 4711, "errors": 1, "last_seen": None, "meaning": None, "action": None}
    ]


@pytest.mark.parametrize(
    "bad", [counted("x", 1), counted("9" * 40, 1), counted(31, float("nan")), counted(31, 10**400)]
)
def test_readings_that_are_no_errors_are_left_out(bad: Reading) -> None:
    assert errors(status(bad)) == []


def test_of_many_codes_the_latest_are_listed_and_the_rest_counted() -> None:
    found = status(*(seen(code, code) for code in range(1, MOST_XIDS + 4)))
    [first, _] = cast(tuple[GpuStatus, ...], found.gpus)
    assert [one.code for one in first.xids] == list(range(1, MOST_XIDS + 1))
    assert first.xids_left_out == 3
    assert "and 3 more codes" in body(found, ())


def test_the_page_has_a_table_of_errors() -> None:
    found = page(status(counted(79, 2), seen(79, 120)), ())
    rows = table(read(found), "xids")
    assert rows == [
        ["GPU", "XID", "Meaning", "Advice", "Errors", "Last"],
        ["GPU 0", "79", "GPU has fallen off the bus", "reboot the node", "2", "2 min ago"],
    ]


def test_a_code_that_is_not_in_the_catalogue_has_advice() -> None:
    [_, row] = table(read(page(status(counted(4711, 1)), ())), "xids")
    assert row[2:4] == [
        "a code that is not in NVIDIA's catalogue",
        "look for the line with this code in the kernel log",
    ]


def test_without_errors_the_page_has_no_such_table() -> None:
    assert 'id="xids"' not in body(status(counted(79, 0)), ())
