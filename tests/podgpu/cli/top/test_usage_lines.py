"""Usage of a day and of four weeks."""

from typing import Any

import msgspec
import pytest

from pipeline.status_page.status_document import StatusDocument
from podgpu.cli.top.styled_text import Line, Style, plain_text, width_of
from podgpu.cli.top.usage_lines import usage_lines
from tests.podgpu.cli.top.whole_node import whole_node

WHOLE = whole_node()


def changed(**changes: Any) -> StatusDocument:
    assert WHOLE.usage is not None
    return msgspec.structs.replace(WHOLE, usage=msgspec.structs.replace(WHOLE.usage, **changes))


def text_of(document: StatusDocument, columns: int = 80) -> str:
    return "\n".join(map(plain_text, usage_lines(document, columns)))


def bars(lines: list[Line]) -> list[str]:
    """Return the bars below the first legend, as columns from the bottom to the top."""
    start = next(at for at, line in enumerate(lines) if "busy" in plain_text(line)) + 1
    rows = [plain_text(line) for line in lines[start : start + 8]]
    width = max(map(len, rows))
    return ["".join(row.ljust(width)[at] for row in reversed(rows)) for at in range(width)]


@pytest.mark.parametrize("columns", [20, 40, 80, 130, 200])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    assert max(map(width_of, usage_lines(WHOLE, columns))) <= columns


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"day": None, "age_seconds": None}, "The ledger usage is being read."),
        ({"day": None}, "The ledger usage has no data: the first figures come within half"),
        ({"error": "disk full"}, "The ledger usage cannot be read now: disk full"),
        ({"days": ()}, "LAST 24 HOURS"),
        ({}, "LAST 28 DAYS (UTC)"),
        ({}, "This is sample data, made by podgpu demo."),
        ({}, "of 216.0 h of all"),
        ({}, "unattributed"),
        ({}, "14 other pods"),
    ],
)
def test_what_is_known_is_said(changes: dict[str, Any], expected: str) -> None:
    assert expected in text_of(changed(**changes))


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"days": ()}, "28 DAYS"),
        ({"sample_data": None}, "sample data"),
        ({"error": None}, "cannot be read"),
    ],
)
def test_what_is_not_so_is_not_said(changes: dict[str, Any], missing: str) -> None:
    assert missing not in text_of(changed(**changes))


def test_without_a_ledger_the_fix_is_said() -> None:
    shown = text_of(msgspec.structs.replace(WHOLE, usage=None))
    assert "Add a sink of kind ledger" in shown.replace("\n", " ")


def test_a_bar_shows_its_parts_from_the_bottom() -> None:
    assert WHOLE.usage is not None
    hour = msgspec.structs.replace(
        WHOLE.usage.hours[-1],
        busy_seconds=3.0, idle_seconds=2.0, unknown_seconds=2.0, free_seconds=1.0,
    )  # fmt: skip
    lines = usage_lines(changed(hours=(hour,)), 80)
    assert bars(lines)[-3:] == ["███▒▒??·", "███▒▒??·", " " * 8]
    found = {span.text.strip(): span.style for line in lines for span in line}
    assert (found["██"], found["▒▒"]) == (Style.USE, Style.WARNING)


def test_an_hour_without_usage_data_has_no_bar() -> None:
    """The whole node has none for two hours, the tenth and eleventh before the last."""
    columns = bars(usage_lines(WHOLE, 25))
    assert len(columns) == 25
    assert [at for at, column in enumerate(columns) if not column.strip()] == [0, 14, 15]


def test_a_terminal_that_is_too_narrow_shows_the_latest_hours() -> None:
    wide, narrow = (bars(usage_lines(WHOLE, columns)) for columns in (25, 22))
    assert narrow == wide[-22:]


def test_a_little_time_of_no_known_container_is_not_mentioned() -> None:
    assert WHOLE.usage is not None
    day = WHOLE.usage.day
    assert day is not None
    little = msgspec.structs.replace(day.unattributed, busy_seconds=0.05)
    shown = text_of(changed(day=msgspec.structs.replace(day, unattributed=little)))
    assert "no known container" not in shown


def test_the_rows_of_pods_add_up_to_the_total() -> None:
    lines = text_of(changed()).splitlines()
    [row] = [line.split() for line in lines if line.startswith("unattributed")]
    assert len(row) == 5, "busy time and energy, each with its unit; it holds nothing"


def test_idle_time_is_never_negative() -> None:
    day = WHOLE.usage.day if WHOLE.usage is not None else None
    assert day is not None
    busy = msgspec.structs.replace(day.pods[0], idle_seconds=-5000.0)
    lines = text_of(changed(day=msgspec.structs.replace(day, pods=(busy,)))).splitlines()
    assert " none " in next(line for line in lines if line.startswith("research/llama-train-0"))


@pytest.mark.parametrize(
    ("uids", "heading"),
    [
        (["7c6f"], "POD"),
        (["7c6f", None], "POD"),
        (["slurm://lab/7/1"], "JOB"),
        (["docker://8d05", "podman://77aa"], "CONTAINER"),
        (["7c6f", "slurm://lab/7/1"], "OWNER"),
    ],
)
def test_the_heading_names_what_the_owners_are(uids: list[str | None], heading: str) -> None:
    assert WHOLE.usage is not None
    assert WHOLE.usage.day is not None
    first = WHOLE.usage.day.pods[0]
    pods = tuple(msgspec.structs.replace(first, uid=uid) for uid in uids)
    lines = text_of(changed(day=msgspec.structs.replace(WHOLE.usage.day, pods=pods))).split("\n")
    assert any(line.startswith(f"{heading} ") for line in lines)
    assert any(line.startswith(f"14 other {heading.lower()}s ") for line in lines)
