"""What the table of GPUs emphasizes: always in words, never only by its colour."""

import re
from dataclasses import replace

import msgspec
import pytest

from pipeline.model import GpuProcess, ProcessList, SamplesTaken, Usage
from pipeline.status_page.document_builder import status_of
from pipeline.status_page.html.device_table import MOST_PROCESSES
from pipeline.status_page.html.style import STYLE
from pipeline.status_page.recent_past import RecentPast
from tests.pipeline.status_page.html_reader import Element, page, read
from tests.pipeline.status_page.scenes import report_claims, started_node, status, status_input
from tests.pipeline.status_page.test_container_use import account, shown
from tests.pipeline.status_page.test_graphs import row_of
from tests.support.nodes import START, at, gpu, kubelet_claim, mig, reading, uuid_of

GIB = 1 << 30


def cell_of(label: str, **readings: float) -> Element:
    node = started_node()
    node.has(gpu(0))
    node.reads(*(reading(gpu(0), field, value) for field, value in readings.items()))
    found = read(page(status_of(status_input(node, now=at(1))), ()))
    [cell] = [each for each in found.all("td") if each.attributes.get("data-l") == label]
    return cell


@pytest.mark.parametrize(
    ("celsius", "slowdown", "level", "text"),
    [
        (60, 87, "", "60 °C"),
        (81, 87, "", "81 °C"),
        (82, 87, "warn", "82 °C near its limit of 87 °C"),
        (86, 87, "warn", "86 °C near its limit of 87 °C"),
        (87, 87, "bad", "87 °C at its limit of 87 °C"),
        (95, 87, "bad", "95 °C at its limit of 87 °C"),
        # Limits of GPUs differ: the same temperature is normal for another one.
        (86, 99, "", "86 °C"),
        (84, None, "", "84 °C"),
        (85, None, "warn", "85 °C hot"),
    ],
)
def test_the_level_of_a_temperature(
    celsius: float, slowdown: float | None, level: str, text: str
) -> None:
    readings = {"gpu_temperature_celsius": celsius}
    if slowdown is not None:
        readings["temperature_slowdown_celsius"] = slowdown
    cell = cell_of("Temp.", **readings)
    assert cell.text.replace("\N{NO-BREAK SPACE}", " ") == text
    assert [each.attributes["class"] for each in cell.all("span")] == [level] * bool(level)


@pytest.mark.parametrize(("used", "is_full"), [(94, False), (95, True), (100, True)])
def test_memory_that_is_nearly_full_is_called_so(used: int, is_full: bool) -> None:
    cell = cell_of("Memory", memory_used_bytes=used * GIB, memory_total_bytes=100 * GIB)
    assert ("nearly full" in cell.text) == is_full
    assert (cell.all("rect")[1].attributes["class"] == "w") == is_full


def test_power_is_shown_with_its_limit() -> None:
    assert cell_of("Power", power_watts=650, power_limit_enforced_watts=700).text.startswith(
        "650 of 700"
    )
    assert cell_of("Power", power_watts=650).text.startswith("650")


def test_a_device_with_problems_links_to_them() -> None:
    rows = read(page(status("troubled"), ())).one("table", class_="gpus").all("tr")[1:]
    links = [[each for each in row.all("a") if each.text.endswith("problem")] for row in rows]
    assert [len(each) for each in links] == [1, 1, 0, 0]
    lost, contested = links[0][0], links[1][0]
    assert (lost.text, lost.attributes["class"]) == ("1 problem", "critical")
    assert (contested.text, contested.attributes["class"]) == ("1 problem", "warning")
    assert lost.attributes["href"] == "#problems"


@pytest.mark.parametrize("debug", [False, True])
def test_of_many_processes_some_are_listed_and_the_rest_counted(debug: bool) -> None:
    node = started_node()
    node.has(gpu(0))
    running = tuple(GpuProcess(pid, "compute", pid * GIB) for pid in range(1, MOST_PROCESSES + 3))
    node.say(SamplesTaken((), (ProcessList(uuid_of(0), running, START, 10**12),)))
    text = (
        read(page(status_of(status_input(node)), (), debug=debug)).one("table", class_="gpus").text
    )
    assert "5 processes: 5 (5.0 GiB), 4 (4.0 GiB), 3 (3.0 GiB)" in text
    assert ("and 2 more" in text, "1 (1.0 GiB)" in text) == (not debug, debug)


def test_an_instance_has_graphs_of_its_own() -> None:
    node, past = started_node(), RecentPast()
    part = mig(gpu(0), 7)
    node.has(gpu(0), part)
    for step in range(3):
        node.seconds = step * 30
        node.reads(
            reading(gpu(0), "power_watts", 300, when=at(node.seconds)),
            reading(part, "graphics_engine_active_ratio", 0.5, when=at(node.seconds)),
            reading(part, "memory_used_bytes", GIB, when=at(node.seconds)),
        )
        past.add(node.snapshot())
    known = status_input(node, now=at(node.seconds), past=past.known())
    whole, instance = read(page(status_of(known), ())).one("table", class_="gpus").all("tr")[1:]
    labels = [
        [each.attributes["aria-label"] for each in row.all("svg", class_="hour")]
        for row in (whole, instance)
    ]
    assert labels == [["from 300 W to 300 W"], ["from 50 % to 50 %", "from 1.0 GiB to 1.0 GiB"]]
    [card] = status_of(known).gpus or ()
    assert card.history is not None
    assert card.history.power_watts == (300, 300, 300)
    assert card.instances[0].history is not None
    assert card.instances[0].history.power_watts is None


def test_a_held_instance_that_does_nothing_is_called_idle() -> None:
    node, past = started_node(), RecentPast()
    part = mig(gpu(0), 7)
    node.has(gpu(0), part)
    report_claims(node, kubelet_claim("a", part.uuid))
    for step in range(4):
        node.seconds = step * 30
        node.reads(reading(part, "graphics_engine_active_ratio", 0, when=at(node.seconds)))
        past.add(node.snapshot())
    known = status_input(node, now=at(node.seconds), past=past.known())
    assert "idle for 2 min" in read(page(status_of(known), ())).one("table", class_="gpus").text


@pytest.mark.parametrize(("part", "is_shown"), [(0.005, False), (0.02, True)])
def test_memory_of_no_known_container_is_shown(part: float, is_shown: bool) -> None:
    whole = 100 * GIB
    known = account().devices[uuid_of(0)]
    device = replace(known, memory_unattributed_bytes=round(whole * part))
    found = shown(Usage({uuid_of(0): device}))
    assert found.memory_unattributed_bytes == round(whole * part)
    text = row_of(msgspec.structs.replace(found, memory_total_bytes=whole))[5]
    assert (
        "no known container uses 2.0 GiB" in text.replace("\N{NO-BREAK SPACE}", " ")
    ) == is_shown


# Contrast.


def _luminance(colour: str) -> float:
    digits = colour if len(colour) == 6 else "".join(2 * each for each in colour)
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


SCHEMES = [
    dict(re.findall(r"--(\w+):#(\w+)", block)) for block in re.findall(r":root\{([^}]*)", STYLE)
]
TEXTS = ("fg", "soft", "bad", "warn", "info", "link", "busy")
GROUNDS = ("bg", "note", "noteb", "notew", "notei")


@pytest.mark.parametrize("scheme", SCHEMES, ids=["light", "dark", "print"])
def test_texts_and_bars_have_enough_contrast(scheme: dict[str, str]) -> None:
    """WCAG 2 AA: 4.5 for texts, 3 for what a graph shows."""
    for name in TEXTS:
        for ground in GROUNDS if name != "busy" else ("bg",):
            assert _contrast(scheme[name], scheme[ground]) >= 4.5, (name, ground)
    for name in ("busy", "mem", "pow", "unknown"):
        assert _contrast(scheme[name], scheme["bg"]) >= 3, name
    for one, other in (("busy", "idle"), ("idle", "free")):
        assert _contrast(scheme[one], scheme[other]) >= 1.5, (one, other)
