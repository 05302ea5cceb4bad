"""Rows of devices: names, durations, remarks, reasons for unknown values, styles."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from pipeline.status_page.document_builder import status_of
from pipeline.status_page.status_document import GpuStatus, StatusDocument
from podgpu.cli.top.names import shortened
from podgpu.cli.top.styled_text import Style, plain_text
from podgpu.cli.top.ui_state import State
from podgpu.cli.top.view import device_lines
from tests.pipeline.status_page.scenes import report_claims, started_node, status, status_input
from tests.podgpu.cli.top.views import lines
from tests.podgpu.cli.top.whole_node import whole_node
from tests.support.nodes import gpu, kubelet_claim

WHOLE = whole_node()


def only(index: int, **changes: Any) -> StatusDocument:
    """Return the whole node with only one of its GPUs, which is changed."""
    assert WHOLE.gpus is not None
    changed = msgspec.structs.replace(WHOLE.gpus[index], **changes)
    return msgspec.structs.replace(WHOLE, gpus=(changed,))


def styles(document: StatusDocument, text: str) -> set[Style]:
    """Return the styles of the parts of lines that contain a text."""
    shown = device_lines(document, State(), 80)
    return {span.style for each in shown for span in each.line if text in span.text}


# Reasons and remarks.


@pytest.mark.parametrize(
    ("index", "changes", "expected"),
    [
        (0, {"power_watts": None}, "power unknown: no source reads it"),
        (0, {"holders": None}, "holders unknown: no source reports holders"),
        (5, {}, "busy, memory, power, temperature unknown: it does not respond"),
        (4, {}, "busy of its instances unknown: needs a profiling field"),
    ],
)
def test_a_line_says_why_a_value_is_unknown(
    index: int, changes: dict[str, Any], expected: str
) -> None:
    assert expected in [line.strip() for line in lines(only(index, **changes))]


def test_without_unknown_values_there_is_no_such_line() -> None:
    assert "unknown" not in "".join(lines("two-gpus"))


@pytest.mark.parametrize(
    ("index", "changes", "text", "style"),
    [
        (5, {}, "LOST", Style.CRITICAL),
        (8, {}, "state unknown", Style.WARNING),
        (1, {}, "idle 1h", Style.WARNING),
        (3, {}, "not held", Style.WARNING),
        (6, {}, "contradict", Style.WARNING),
        (2, {}, "no known container", Style.WARNING),
        (0, {}, "64°C", Style.PLAIN),
        (0, {"temperature_celsius": 85.0}, "85°C", Style.WARNING),
        (0, {"temperature_slowdown_celsius": 90.0}, "64°C", Style.PLAIN),
        (0, {"temperature_slowdown_celsius": 68.0}, "64°C", Style.WARNING),
        (0, {"temperature_slowdown_celsius": 64.0}, "64°C", Style.CRITICAL),
        (0, {}, "▅▅▆▆▆▇", Style.MEMORY),
        (2, {}, "▇▇█", Style.WARNING),
        (0, {}, "██", Style.USE),
    ],
)
def test_levels_have_styles(index: int, changes: dict[str, Any], text: str, style: Style) -> None:
    assert styles(only(index, **changes), text) == {style}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("no-driver", "No source has reported GPUs yet."),
        ("nothing-yet", "No source has reported GPUs yet."),
    ],
)
def test_a_text_is_shown_while_no_gpus_are_known(name: str, expected: str) -> None:
    assert lines(name) == [expected]


def test_a_text_is_shown_for_a_node_without_gpus() -> None:
    node = started_node()
    node.has()
    assert lines(status_of(status_input(node))) == ["This node has no GPU."]


@pytest.mark.parametrize(
    ("seconds", "seen_since", "known"),
    [
        (59, "59s+", "59s"),
        (7200, "2h+", "2h"),
        (98 * 86_400, "98d+", "98d"),
        (400 * 86_400, "99d+", "400d"),
    ],
)
def test_the_duration_of_a_holding(seconds: int, seen_since: str, known: str) -> None:
    document = status("two-gpus")
    assert document.gpus is not None
    card, other = document.gpus
    assert card.holders is not None
    for since_known, expected in ((False, seen_since), (True, known)):
        holder = msgspec.structs.replace(
            card.holders[0],
            since=document.time - timedelta(seconds=seconds),
            since_known=since_known,
        )
        held = msgspec.structs.replace(card, holders=(holder,))
        shown = lines(msgspec.structs.replace(document, gpus=(held, other)))
        assert shown[1].endswith(f" {expected}")


# Own use.


@pytest.mark.parametrize("columns", [40, 80, 120, 200])
def test_each_holder_of_a_shared_gpu_has_its_own_use(columns: int) -> None:
    shown = "\n".join(lines(only(2), columns=columns))
    for busy, memory, energy in (("45%", "80.2", "0.512 kWh"), ("15%", "21.0", "0.130 kWh")):
        assert busy in shown
        assert memory in shown
        assert energy in shown


@pytest.mark.parametrize("columns", [40, 80, 120, 200])
def test_a_split_busy_time_has_its_error(columns: int) -> None:
    """Rounded up; without one where the container is alone, `~` where the error is unknown."""
    shown = [" ".join(each.split()) for each in lines(WHOLE, columns=columns)]
    for expected in ("45% ±4", "15% ±4", "0% ±1", "~21%", "97%"):
        assert any(f" {expected} " in f" {line} " for line in shown), expected


def test_graphs_end_at_the_present() -> None:
    """A GPU of which less has been read has its graph at the right."""
    assert WHOLE.gpus is not None
    hour = WHOLE.gpus[0].history
    assert hour is not None
    later = msgspec.structs.replace(
        hour,
        utilization_percent=hour.utilization_percent[-12:],
        memory_used_bytes=hour.memory_used_bytes[-12:],
        power_watts=(hour.power_watts or ())[-12:],
    )
    cards = (WHOLE.gpus[0], msgspec.structs.replace(WHOLE.gpus[7], history=later))
    rows = [
        plain_text(each.line)[27:37]
        for each in device_lines(msgspec.structs.replace(WHOLE, gpus=cards), State(), 80)
        if plain_text(each.line)[:1].isdigit()
    ]
    assert rows[0].strip() == rows[0]
    assert rows[1][:9].isspace()
    assert rows[1][9] == rows[0][9]


# Names.


LONG = "llama-70b-pretraining-worker"


@pytest.mark.parametrize(
    ("pod", "container", "room", "expected"),
    [
        ("ml/train-0", "(main)", 21, "ml/train-0 (main)"),
        ("ml/train-0", "(a-long-sidecar)", 21, "ml/train-0 (a-long-s~"),
        (f"ml/{LONG}-0", "(main)", 21, "ml/lla~orker-0 (main)"),
        (f"ml/{LONG}-0", "(trainer)", 21, "ml/llama-7~g-worker-0"),
        ("ml/train-0", "(main)", 13, "ml/train-0"),
        ("ml/train-0", "", 8, "ml/~in-0"),
        ("ml/train-0", "(main)", 0, ""),
        ("", "(main)", 9, "(main)"),
    ],
)
def test_a_name_that_is_too_long_is_shortened(
    pod: str, container: str, room: int, expected: str
) -> None:
    assert shortened(pod, container, room) == expected


def held_by(*names: str, container: str = "main") -> StatusDocument:
    """Return a document with one GPU for each of these pods."""
    node = started_node()
    cards = [gpu(n) for n in range(len(names))]
    node.has(*cards)
    pairs = zip(names, cards, strict=True)
    report_claims(
        node, *(kubelet_claim(name, card.uuid, container=container) for name, card in pairs)
    )
    return status_of(status_input(node))


@pytest.mark.parametrize("columns", [30, 64, 72, 80, 111, 112, 139, 200])
@pytest.mark.parametrize("container", ["main", "c" * 63])
@pytest.mark.parametrize(
    "names",
    [
        [f"{LONG}-0", f"{LONG}-1"],
        [f"{LONG}-7c9d5f6b4-x7k2p", f"{LONG}-7c9d5f6b4-m4q9z"],
        [f"a-{LONG}", f"b-{LONG}"],
        [f"{'p' * 252}1", f"{'p' * 252}2"],
    ],
)
def test_shortened_names_of_pods_stay_distinct(
    names: list[str], container: str, columns: int
) -> None:
    """Names of pods of one workload differ at the end, those of several at the beginning."""
    shown = lines(held_by(*names, container=container), columns=columns)
    assert len({line for line in shown if line.startswith("  ml/")}) == len(names)


@pytest.mark.parametrize("columns", [30, 64, 80, 112, 130, 200])
@pytest.mark.parametrize("pod", ["p", f"{LONG}-7c9d5f6b4-x7k2p", "0123456789" * 25, "日" * 60])
def test_the_full_name_is_shown_on_request(pod: str, columns: int) -> None:
    shown = lines(held_by(pod), State(whole=True), columns)
    joined = "".join("".join(shown).split())
    assert f"ml/{pod}(main)" in joined


def test_a_gpu_without_an_index_is_named_by_its_uuid() -> None:
    assert WHOLE.gpus is not None
    unknown = msgspec.structs.replace(WHOLE.gpus[0], index=None)
    assert isinstance(unknown, GpuStatus)
    [row, *_] = lines(msgspec.structs.replace(WHOLE, gpus=(unknown,)), columns=200)
    assert row.startswith(f"{unknown.uuid} H200")


@pytest.mark.parametrize("columns", [40, 80, 120, 200])
def test_an_energy_without_a_part_of_the_time_is_a_lower_bound(columns: int) -> None:
    gpu = (WHOLE.gpus or ())[0]
    assert gpu.holders
    use = gpu.holders[0].use
    assert use is not None
    for joules, expected in ((52_000.0, "0.014"), (52e6, "14.4"), (52e9, "14444")):
        part = msgspec.structs.replace(use, energy_joules=joules, incomplete=True)
        holder = msgspec.structs.replace(gpu.holders[0], use=part)
        changed = msgspec.structs.replace(gpu, holders=(holder,))
        status = msgspec.structs.replace(WHOLE, gpus=(changed,))
        shown = "".join(plain_text(each.line) for each in device_lines(status, State(), columns))
        assert f"{expected}kWh+" in "".join(shown.split())
