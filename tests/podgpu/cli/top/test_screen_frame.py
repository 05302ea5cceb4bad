"""Header and footer: what the data is, how old it is, which keys there are."""

from typing import Any

import msgspec
import pytest

from podgpu.cli.top.daemon_status import DaemonStatus
from podgpu.cli.top.screen_frame import footer, header
from podgpu.cli.top.styled_text import Style, plain_text
from podgpu.cli.top.ui_state import State, View
from podgpu.cli.top.view import frame
from tests.podgpu.cli.top.views import document_of, state_after, texts
from tests.podgpu.cli.top.whole_node import whole_node

WHOLE = whole_node()


def top(daemon: DaemonStatus, columns: int = 80) -> list[str]:
    return [plain_text(line).rstrip() for line in header(daemon, columns)]


def test_a_node_without_problems_has_one_line() -> None:
    expected = "node-1  2 GPUs: 2 up; no problem is known"
    [line] = top(DaemonStatus(document_of("two-gpus")))
    assert line.startswith(expected)
    assert line.endswith(" 08:10:00 UTC")


@pytest.mark.parametrize(
    ("document", "changes", "expected", "style"),
    [
        ("two-gpus", {"error": "refused"}, "NO RESPONSE for 2 min: refused", Style.CRITICAL),
        (
            "two-gpus",
            {"is_late": True},
            "podgpu has not responded for 2 min; it may be overloaded",
            Style.WARNING,
        ),
        (
            "nothing-yet",
            {},
            "not ready: waiting for the first report of: gpus, kubelet",
            Style.WARNING,
        ),
    ],
)
def test_what_is_special_is_said(
    document: str, changes: dict[str, Any], expected: str, style: Style
) -> None:
    daemon = DaemonStatus(document_of(document), 125.0, **changes)
    assert top(daemon)[1] == expected
    assert header(daemon, 80)[1][0].style is style


@pytest.mark.parametrize("columns", [20, 40, 80, 120, 240])
def test_recorded_and_simulated_data_is_named(columns: int) -> None:
    shown = " ".join(top(DaemonStatus(WHOLE), columns))
    for note in WHOLE.notes:
        assert note in shown


def test_many_notes_end_with_a_whole_word() -> None:
    document = msgspec.structs.replace(WHOLE, notes=("word " * 200,))
    assert top(DaemonStatus(document), 80)[-1].endswith("word ...")


@pytest.mark.parametrize("changes", [{"error": "refused"}, {"is_late": True}])
def test_what_may_be_old_is_dimmed(changes: dict[str, Any]) -> None:
    shown = frame(DaemonStatus(WHOLE, 9.0, **changes), State(), 80, 60)
    start = next(at for at, line in enumerate(texts(shown)) if line.startswith("GPU, HELD")) + 1
    assert {span.style for line in shown.lines[start:-1] for span in line if span.text.strip()} == {
        Style.SOFT
    }


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_the_first_keys_are_help_and_quit(columns: int) -> None:
    shown = plain_text(footer(State(), "", columns))
    assert shown.startswith("? help  q quit")
    assert len(shown) == columns


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (state_after("u"), "by utilization"),
        (state_after("f"), "folded"),
        (state_after("/", "a", "enter"), "filter: a"),
        (State(view=View.COMPONENTS), "sources and sinks  Esc goes back"),
        (State(), "1-4 of 9"),
    ],
)
def test_what_is_selected_is_at_the_right(state: State, expected: str) -> None:
    shown = plain_text(footer(state, "1-4 of 9", 80))
    assert expected in shown
    assert shown.endswith("1-4 of 9")


def test_the_filter_that_is_typed_is_shown() -> None:
    shown = plain_text(footer(state_after("/", "a", "b"), "", 80))
    assert shown.startswith("filter: ab_   Enter applies, Esc cancels")
