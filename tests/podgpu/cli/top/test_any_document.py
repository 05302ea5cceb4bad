"""Properties of every screen: widths, heights, printable characters, no hidden line."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.status_page.document_builder import status_of
from pipeline.status_page.status_document import GpuStatus, HolderStatus, StatusDocument
from podgpu.cli.terminal_text import width
from podgpu.cli.top.daemon_status import DaemonStatus
from podgpu.cli.top.styled_text import Style, fitted, plain_text, styled, width_of
from podgpu.cli.top.table_layout import LEAST, layout_of
from podgpu.cli.top.view import device_lines, frame
from tests.pipeline.status_page.scenes import SCENES, hostile
from tests.podgpu.cli.top.views import document_of, state_after, texts
from tests.podgpu.cli.top.whole_node import whole_node
from tests.support.examples import examples

KEYS = ["", "f", "a", "xe", "s", "!", "d", "?", "u", "/x"]
WHOLE = whole_node()


def assert_fits(daemon: DaemonStatus, keys: str, columns: int, height: int) -> None:
    shown = frame(daemon, state_after(*keys), columns, height)
    assert len(shown.lines) == height
    for line in texts(shown):
        assert width(line) == columns
        assert line.isprintable()


@pytest.mark.parametrize("name", [*SCENES, "whole"])
@pytest.mark.parametrize("size", [(80, 24), (40, 10), (200, 60), (20, 5), (1, 1), (5, 3), (2, 9)])
@pytest.mark.parametrize("keys", KEYS)
def test_every_line_is_as_wide_as_the_terminal(name: str, size: tuple[int, int], keys: str) -> None:
    document = WHOLE if name == "whole" else document_of(name)
    assert_fits(DaemonStatus(document), keys, *size)
    assert_fits(DaemonStatus(document, 70.0, "refused " * 40), keys, *size)


NAMES = st.text(
    st.one_of(
        st.characters(codec="utf-8"),
        st.sampled_from(
            "日한🚀e\N{COMBINING ACUTE ACCENT}\N{ZERO WIDTH JOINER}\ufe0f\x1b\x9b\r\n\t"
        ),
    ),
    min_size=1,
    max_size=80,
)


def renamed(name: str) -> StatusDocument:
    """Return the whole node, with a name in each place where people choose names."""

    def of_holder(holder: HolderStatus) -> HolderStatus:
        return msgspec.structs.replace(holder, namespace=name, pod=name, container=name)

    def of_gpu(gpu: GpuStatus) -> GpuStatus:
        holders = None if gpu.holders is None else tuple(map(of_holder, gpu.holders))
        instances = tuple(
            msgspec.structs.replace(
                each, profile=name, holders=tuple(map(of_holder, each.holders or ()))
            )
            for each in gpu.instances
        )
        return msgspec.structs.replace(gpu, name=name, holders=holders, instances=instances)

    return msgspec.structs.replace(
        WHOLE,
        node=name,
        notes=(name,),
        gpus=tuple(map(of_gpu, WHOLE.gpus or ())),
        sources=tuple(msgspec.structs.replace(each, name=name) for each in WHOLE.sources),
        problems=tuple(
            msgspec.structs.replace(each, text=name, advice=name) for each in WHOLE.problems or ()
        ),
    )


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(60))
@given(NAMES, st.integers(20, 220), st.integers(1, 60), st.sampled_from(KEYS))
def test_no_name_makes_a_line_wider(name: str, columns: int, height: int, keys: str) -> None:
    assert_fits(DaemonStatus(renamed(name)), keys, columns, height)


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(40))
@given(st.text(min_size=1, max_size=400))
def test_any_external_text_stays_on_its_line(text: str) -> None:
    for keys in ("", "s", "!"):
        assert_fits(DaemonStatus(status_of(hostile(text))), keys, 80, 24)


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(60))
@given(st.integers(20, 250))
def test_no_width_hides_a_holder_or_a_value(columns: int) -> None:
    """Each GPU, its use, and the start or the end of each holder's name are in the lines."""
    shown = [plain_text(each.line) for each in device_lines(WHOLE, state_after("a"), columns)]
    joined = "\n".join(shown)
    for gpu in WHOLE.gpus or ():
        assert any(line.startswith(str(gpu.index)) for line in shown)
        if gpu.utilization_percent is not None:
            assert f"{gpu.utilization_percent:.0f}%" in joined
        for holder in gpu.holders or ():
            assert (holder.namespace or "")[:3] in joined


@pytest.mark.parametrize("graphs", [False, True])
def test_the_columns_of_every_width_fill_it(graphs: bool) -> None:
    for columns in range(LEAST, 400):
        layout = layout_of(columns, graphs=graphs)
        widths = [column.width for column in layout.columns]
        assert sum(widths) + layout.gap * (len(widths) - 1) == columns
        assert min(widths) > 0
        assert widths[0] >= 20


def test_a_wider_terminal_does_not_have_fewer_columns() -> None:
    counts = [len(layout_of(columns).columns) for columns in range(LEAST, 400)]
    assert all(a <= b for a, b in pairwise(counts))


@settings(deadline=None, max_examples=examples(100))
@given(
    st.lists(st.tuples(st.text(max_size=12), st.sampled_from(Style)), max_size=5),
    st.integers(0, 30),
    st.booleans(),
)
def test_a_styled_line_is_fitted(parts: list[tuple[str, Style]], columns: int, right: bool) -> None:
    line = tuple(span for text, style in parts for span in styled(text, style))
    found = fitted(line, columns, right=right)
    assert width_of(found) == columns
    if width_of(line) <= columns:
        assert plain_text(line) in plain_text(found)
    elif columns:
        assert "~" in plain_text(found)
