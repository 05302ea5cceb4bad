"""The page at `/`, parsed by an HTML parser.

`PODGPU_WRITE_GOLDEN=1` writes the golden file again; check the difference before you commit it.
"""

import os
import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.http.builtin_pages import links
from pipeline.status_page.document_builder import status_of
from pipeline.status_page.html.holder_cell import MOST_HOLDERS
from pipeline.status_page.html.page import refresh
from pipeline.status_page.html.style import POLICY, STYLE
from podgpu.cli.top.command import plain
from tests.pipeline.status_page.html_reader import Element, page, read, table
from tests.pipeline.status_page.scenes import (
    SCENES,
    hostile,
    mig_node,
    report_claims,
    started_node,
    status,
    status_input,
)
from tests.support.examples import examples
from tests.support.nodes import gpu, kubelet_claim, uuid_of

GOLDEN = Path(__file__).parents[2] / "golden" / "status_page"
LINKS = links([("/metrics", "metrics for Prometheus"), ("/a b&<c>", 'A "title"')])

TAGS = frozenset(
    """html head meta title style body header h1 h2 h3 p time section ul li main table thead tbody
    tr th td b small span svg rect path g div a nav footer br""".split()  # noqa: SIM905
)
ATTRIBUTES = frozenset(
    """lang charset name content class id aria-labelledby aria-hidden role scope datetime data-l
    href viewbox preserveaspectratio width height x y d aria-label title""".split()  # noqa: SIM905
)


def shown(name: str) -> Element:
    return read(page(status(name), LINKS))


def all_elements(element: Element) -> list[Element]:
    below = [child for child in element.children if isinstance(child, Element)]
    return [*below, *(each for child in below for each in all_elements(child))]


def test_the_page_equals_the_golden_file() -> None:
    text = page(status("two-gpus"), LINKS).replace(STYLE, "\n")
    file = GOLDEN / "two-gpus.html"
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def test_the_rows_of_two_gpus() -> None:
    assert table(shown("two-gpus"), "gpus") == [
        ["GPU", "Busy", "Memory", "Power", "Temp.", "Held by"],
        [
            "GPU 0 NVIDIA H100 80GB HBM3 GPU-00000000",
            "93 %",
            "40.0 of 80.0 GiB",
            "385 of 700 W",
            "50 °C",
            "ml/train-0 (main) for at least 10 min",
        ],
        [
            "GPU 1 NVIDIA H100 80GB HBM3 GPU-00000001",
            "0 %",
            "0 of 80.0 GiB",
            "70 of 700 W",
            "30 °C",
            "free",
        ],
    ]


def test_instances_are_rows_below_their_gpu() -> None:
    bodies = shown("mig").one("table", class_="gpus").all("tbody")
    assert [len(body.all("tr")) for body in bodies] == [8] * 8
    for index, body in enumerate(bodies):
        whole, *below = body.all("tr")
        assert whole.one("th").text.startswith(f"GPU {index} ")
        assert "of 7 instances held" in whole.text
        assert all("1g.10gb GI " in row.one("th").text for row in below)
        assert sum("free" in row.text for row in below) in (1, 2)


def test_a_bar_has_the_length_of_its_number() -> None:
    cells = [
        cell
        for cell in shown("mig").all("td")
        if cell.attributes.get("data-l") in {"Busy", "Memory"}
    ]
    bars = [cell for cell in cells if cell.all("svg", class_="bar")]
    assert len(bars) == 56 * 2 + 8
    for cell in bars:
        bar_width = cell.all("rect")[1].attributes["width"]
        assert bar_width is not None
        if cell.attributes["data-l"] == "Busy":
            assert f"{bar_width} %" == cell.text
        assert cell.one("svg", class_="bar").attributes["aria-hidden"] == "true"


def test_rows_and_cells_have_headings_and_roles() -> None:
    for name in SCENES:
        for element in shown(name).all("table"):
            assert element.attributes["role"] == "table"
            columns = element.one("thead").all("th")
            assert all(column.attributes["scope"] == "col" for column in columns)
            for row in [row for body in element.all("tbody") for row in body.all("tr")]:
                assert row.attributes["role"] == "row"
                assert row.one("th").attributes["scope"] == "row"
                cells = row.all("td")
                assert len(cells) == len(columns) - 1
                assert {cell.attributes["role"] for cell in cells} == {"cell"}


def test_every_table_has_a_title_with_a_unique_id() -> None:
    for name in SCENES:
        found = shown(name)
        ids = [each.attributes["id"] for each in all_elements(found) if "id" in each.attributes]
        assert len(set(ids)) == len(ids)
        named = [e.attributes.get("aria-labelledby") for e in all_elements(found)]
        assert {name for name in named if name} <= set(ids)


def test_screen_readers_read_unknown_values_as_unknown() -> None:
    [_, row] = table(shown("no-holders"), "gpus")
    whys = [*["no source reads it"] * 4, "no source reports holders"]
    assert [each.replace("unknown : ", "unknown ") for each in row[1:]] == [
        f"\N{EN DASH} unknown {why}" for why in whys
    ]
    assert "state unknown" in row[0]


@pytest.mark.parametrize("name", ["two-gpus", "mig", "troubled"])
def test_nothing_is_free_while_holders_are_unknown(name: str) -> None:
    """Claims do not suffice: a source must have reported that it lists all holders."""
    document = status_of(replace(SCENES[name](), holders_known=False))
    for text in (read(page(document, LINKS)).one("main").text, "\n".join(plain(document, 160))):
        assert "unknown" in text
        assert not re.search(r"\bfree\b|\bnot held\b|\binstances held\b", text)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("troubled", "GPU 0 is lost: it was present before and no longer responds"),
        ("troubled", "source kubelet is down: /run/x.sock: connection refused"),
        ("troubled", "sink push: nothing is delivered: collector:4317 does not answer"),
        ("troubled", "GPU 1: claims of pods contradict each other"),
        ("no-driver", "no source has reported GPUs (down: gpus)"),
        ("nothing-yet", "no source has reported GPUs yet"),
    ],
)
def test_problems_are_listed_at_the_top(name: str, expected: str) -> None:
    assert expected in shown(name).one("section", class_="problems").text


def test_without_problems_there_is_no_list_of_problems() -> None:
    assert shown("two-gpus").all("section") == []
    assert shown("two-gpus").one("p", class_="ok").text == "No problem is known."


def test_problems_are_shown_with_their_gpu() -> None:
    [_, lost, contested, shared, part] = table(shown("troubled"), "gpus")
    assert "lost" in lost[0]
    assert lost[5] == "not held"
    assert "ml/new (main)" in contested[5]
    assert "ml/old (main)" in contested[5]
    assert "claims of pods contradict each other" in contested[5]
    assert [f"ml/serve-{n} (main) , 1 replica" in shared[5] for n in range(3)] == [True] * 3
    assert "ml/half (main) , 50 % for at least 6 min" in part[5]


def test_sources_evidence_and_whole_uuids_are_shown_on_demand() -> None:
    plain_page, debug = page(status("troubled"), LINKS), page(status("troubled"), LINKS, debug=True)
    [*_, short] = table(read(plain_page), "gpus")
    [*_, long] = table(read(debug), "gpus")
    assert short[0].endswith("GPU-00000003")
    assert "reported by" not in read(plain_page).one("table", class_="gpus").text
    assert long[0].endswith(uuid_of(3))
    assert ", reported by podlist (pod list file, 6 min ago)" in long[5]
    heads = read(plain_page).one("table", class_="gpus").all("th", scope="row")
    assert [each.one("small").attributes["title"] for each in heads] == list(map(uuid_of, range(4)))


def test_sources_and_sinks_are_shown_with_their_errors() -> None:
    found = shown("troubled")
    [_, _, kubelet, podlist] = table(found, "parts")
    assert kubelet[:5] == ["kubelet podresources", "down", "10 min ago", "10 min ago", "12"]
    assert kubelet[5].endswith("is the kubelet running? (20 s ago)")
    assert podlist[1:4] == ["up", "6 min ago", "6 min ago"]
    assert podlist[5] == "the file is not there (8 min ago, resolved)"
    [_, metrics, push] = table(found, "parts", 1)
    assert metrics[0] == "metrics prometheus"
    assert push[:5] == [
        "push otlp",
        "not delivering",
        "1 000 000",
        "12 345, oldest 4 min 3 MiB",
        "7 dropped",
    ]


def test_not_ready_is_shown_with_its_reason() -> None:
    text = shown("nothing-yet").text
    assert "Not ready: waiting for the first report of: gpus, kubelet" in text
    [_, gpus, _] = table(shown("nothing-yet"), "parts")
    assert gpus[1:3] == ["no report yet", "never"]
    [_, metrics] = table(shown("nothing-yet"), "parts", 1)
    assert metrics[1] == "\N{EN DASH} unknown no report yet"


def test_of_many_holders_some_are_named_and_the_rest_counted() -> None:
    node = started_node()
    node.has(gpu(0))
    report_claims(node, *(kubelet_claim(f"p{n:02}", f"{uuid_of(0)}::{n}") for n in range(48)))
    [_, row] = table(read(page(status_of(status_input(node)), ())), "gpus")
    assert row[5].count("replica") == MOST_HOLDERS
    assert "and 40 more: see /status" in row[5]


def test_all_served_paths_are_linked() -> None:
    items = shown("two-gpus").one("nav").all("li")
    assert [item.text for item in items] == [f"{path} {title}" for path, title in LINKS]
    hrefs = [item.one("a").attributes["href"] for item in items]
    assert hrefs == ["./metrics", "./a%20b%26%3Cc%3E", "./healthz", "./readyz"]


# Security.


@pytest.mark.parametrize("name", SCENES)
def test_the_page_runs_no_script_and_loads_no_other_file(name: str) -> None:
    for element in all_elements(shown(name)):
        assert element.tag in TAGS
        assert element.attributes.keys() <= ATTRIBUTES
        assert (element.attributes.get("href") or "./").startswith(("./", "#"))
    assert "url(" not in STYLE
    assert "@import" not in STYLE


HTML = (
    "<b>",
    "</td>",
    "<!--",
    "<script>",
    "<svg/onload=x>",
    "&lt;",
    "&#60;b>",
    "]]>",
    "a",
    " ",
    "\n",
)


@settings(deadline=None, max_examples=examples(60))
@example("<b>")
@example("</th>")
@example("<!--")
@given(st.lists(st.one_of(st.sampled_from(HTML), st.sampled_from("<>&\"'`=/"))).map("".join))
def test_no_text_can_change_the_elements_of_the_page(text: str) -> None:
    """Any text results in the same elements as a harmless text."""

    def outline(content: str) -> list[tuple[str, tuple[str, ...]]]:
        root = read(page(status_of(hostile(content)), (("/x", content),)))
        return [(e.tag, tuple(e.attributes)) for e in all_elements(root) if e.tag != "span"]

    harmless = "x" * max(len(text.strip()), 1) if text.strip() else text
    assert outline(text) == outline(harmless)


def test_a_script_in_a_name_is_escaped() -> None:
    text = page(status("hostile"), (("/x", "<script>"),))
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "\x1b" not in text


def test_the_content_security_policy_allows_only_the_style() -> None:
    digest = b64encode(sha256(read(page(status("mig"), LINKS)).one("style").text_of()).digest())
    assert f"style-src 'sha256-{digest.decode()}'" in POLICY
    assert POLICY.startswith("default-src 'none'; ")
    assert "unsafe" not in POLICY
    assert "script-src" not in POLICY


def test_the_page_of_a_large_node_is_small() -> None:
    assert len(page(status_of(mig_node(64, 7)), LINKS)) < 600_000


@pytest.mark.parametrize(
    ("parameter", "seconds"),
    [
        ("", 10),
        ("2", 2),
        ("0", 0),
        ("00", 0),
        ("9999", 3600),
        ("99999", 10),
        ("-1", 10),
        ("1; url=//x", 10),
        ("²", 10),
        ("٣", 10),
    ],
)
def test_the_parameter_sets_the_reload_interval(parameter: str, seconds: int) -> None:
    assert refresh(parameter) == seconds


CHOICES = {"./?refresh=2", "./", "./?refresh=60", "./?refresh=0"}
DEBUG = {"./": "./?debug=1", None: "./?refresh=7&debug=1"}


@pytest.mark.parametrize(
    ("seconds", "text", "current"),
    [
        (10, "Reloads every 10 s. Change this: ", "./"),
        (2, "Reloads every 2 s. Change this: ", "./?refresh=2"),
        (0, "Does not reload automatically. Change this: ", "./?refresh=0"),
        (7, "Reloads every 7 s. Change this: ", None),
    ],
)
def test_the_footer_shows_the_interval_and_links_to_the_others(
    seconds: int, text: str, current: str | None
) -> None:
    footer = read(page(status("two-gpus"), LINKS, seconds)).one("footer")
    assert footer.text.startswith(text)
    *others, details = [link.attributes["href"] for link in footer.all("a")]
    assert set(others) == CHOICES - {current}
    assert details == DEBUG.get(current, f"{current}&debug=1")


def test_the_links_keep_what_is_shown() -> None:
    footer = read(page(status("two-gpus"), LINKS, 2, debug=True)).one("footer")
    hrefs = [link.attributes["href"] for link in footer.all("a")]
    assert hrefs == [
        "./?debug=1",
        "./?refresh=60&debug=1",
        "./?refresh=0&debug=1",
        "./?refresh=2",
    ]
    assert footer.all("a")[-1].text == "Hide UUIDs, processes, sources and evidence"
