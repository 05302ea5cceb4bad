"""What podgpu wrote into a pod is never read back as a claim; what others make of it is."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.allocations import koordinator
from pipeline.allocations.own_annotations import MARK, mark_value, own_annotations
from pipeline.model import NS, PodsReplaced
from sources.pods.allocations import allocations
from sources.pods.allocations.annotation_table import _READERS
from tests.sinks.pods.support import KEY, Bench, asking, held, path_of, pod_of, uuids
from tests.sources.pods.annotations import (
    ALIYUN,
    ALIYUN2,
    ALIYUN_ASSIGNED,
    DECIDED,
    HAMI,
    INDEX,
    OURS,
    VGPU,
    A,
    B,
    facts,
)
from tests.sources.pods.raws import distilled_with_left
from tests.support.nodes import claims, uuid_of

# -- the mark


@pytest.mark.parametrize(
    ("annotations", "ours"),
    [
        ({}, {}),
        ({"x.io/a": "1"}, {}),
        ({"x.io/a": "1", MARK: '{"x.io/a":"1"}'}, {"x.io/a": "1"}),
        (
            {"x.io/a": "1", "x.io/b": "2", MARK: '{"x.io/a":"1","x.io/b":"2"}'},
            {"x.io/a": "1", "x.io/b": "2"},
        ),
        (
            {"x.io/a": "1", "x.io/b": "changed", MARK: '{"x.io/a":"1","x.io/b":"2"}'},
            {"x.io/a": "1"},
        ),
        ({MARK: '{"x.io/a":"1"}'}, {}),
        ({"x.io/a": "1", MARK: ""}, {}),
        ({"x.io/a": "1", MARK: '{"x.io/a":"1"'}, {}),
        ({"x.io/a": "1", MARK: '["x.io/a"]'}, {}),
        ({"x.io/a": "1", MARK: "null"}, {}),
        ({"x.io/a": "1", MARK: '"x.io/a"'}, {}),
        ({"x.io/a": "1", MARK: '{"x.io/a":1}'}, {}),
        ({"x.io/a": "null", MARK: '{"x.io/a":null}'}, {}),
        ({"x.io/a": None, MARK: '{"x.io/a":null}'}, {}),
        ({"x.io/a": 1, MARK: '{"x.io/a":1}'}, {}),
        ({"x.io/a": "1", MARK: {"x.io/a": "1"}}, {}),
        ({"x.io/a": "1", MARK: "[" * 100_000}, {}),
        ({MARK: json.dumps({MARK: "x"})}, {}),
        # What podgpu never writes, though a mark says so.
        ({"a": "1", MARK: '{"a":"1"}'}, {}),
        ({"ALIYUN_COM_GPU_MEM_IDX": "0", MARK: '{"ALIYUN_COM_GPU_MEM_IDX":"0"}'}, {}),
        ({"kubernetes.io/a": "1", MARK: '{"kubernetes.io/a":"1"}'}, {}),
        ({"x.io/a": "", MARK: '{"x.io/a":""}'}, {}),
        ({"x.io/a": "{}", MARK: '{"x.io/a":"{}"}'}, {}),
        ({"x.io/a": "1,,2", MARK: '{"x.io/a":"1,,2"}'}, {}),
        ({"x.io/a": "1, 2", MARK: '{"x.io/a":"1, 2"}'}, {}),
    ],
)
def test_what_is_podgpu_s_own(annotations: dict[str, Any], ours: dict[str, str]) -> None:
    assert own_annotations(annotations) == ours


def test_the_mark_is_in_one_order_and_compact() -> None:
    assert mark_value({"b": "1"}, {"a": "2", "c": "3"}) == '{"a":"2","b":"1","c":"3"}'
    assert mark_value({"a": "1"}, {"a": "2"}) == '{"a":"2"}'


TEXTS = st.text(st.characters(codec="utf-8"))
WORDS = st.text("abc019", min_size=1, max_size=9)
NAMES = st.builds("{}.io/{}".format, WORDS, WORDS)
VALUES = st.lists(st.builds("GPU-{}".format, WORDS), min_size=1, max_size=4).map(",".join)
WRITTEN = st.dictionaries(NAMES, VALUES)


@given(WRITTEN, WRITTEN, st.dictionaries(TEXTS.filter(lambda key: key != MARK), TEXTS))
def test_what_was_marked_is_own_and_nothing_else(
    before: dict[str, str], changes: dict[str, str], others: dict[str, str]
) -> None:
    ours = before | changes
    assert own_annotations({**others, **ours, MARK: mark_value(before, changes)}) == ours


# -- as the source reads it


def mark(annotation: str, value: str) -> dict[str, str]:
    return {annotation: value, MARK: json.dumps({annotation: value})}


@pytest.mark.parametrize("value", [A, f"{A},{B}", "rubbish"])
def test_own_annotations_are_no_claims_and_no_cause_for_complaint(value: str) -> None:
    assert allocations(facts(mark(OURS, value)), (OURS,)) == ((), ())
    # Without the mark, or with another value in it, it is somebody's word, and a bad one.
    for others in ({OURS: value}, mark(OURS, "x") | {OURS: value}):
        claims_, [complaint] = allocations(facts(others), (OURS,))
        assert (claims_, complaint.annotation) == ((), OURS)


SAID: list[dict[str, str]] = [
    {OURS: json.dumps({KEY: A})},
    {HAMI: f"{A},NVIDIA,3000,50:;"},
    {HAMI: "rubbish"},
    {"4pd.io/vgpu-ids-new": f"{A},NVIDIA,3000,50:;"},
    {VGPU: f"{A},NVIDIA,3000,50:;"},
    {INDEX: "0", DECIDED: "1"},
    {ALIYUN: "0", ALIYUN_ASSIGNED: "true"},
    {ALIYUN2: '{"0":{"0":4}}'},
    {koordinator.ANNOTATION: json.dumps({"gpu": [{"minor": 3}]})},
]


@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize("configured", [(), (OURS,), (OURS, INDEX, HAMI, KEY)])
def test_no_mark_hides_what_a_scheduler_said(
    said: dict[str, str], configured: tuple[str, ...]
) -> None:
    """Whoever makes a pod can write the mark into its template."""
    marks = {MARK: json.dumps(said)}
    assert allocations(facts(said | marks), configured) == allocations(facts(said), configured)


@pytest.mark.parametrize("said", SAID)
def test_each_of_these_is_someone_s_word(said: dict[str, str]) -> None:
    found, complaints = allocations(facts(said), (OURS,))
    assert len(found) + len(complaints) == 1


def test_every_scheduler_s_annotation_is_among_these() -> None:
    every = {annotation for readers in _READERS.values() for annotation in readers}
    assert every <= {key for said in SAID for key in said}


def test_the_annotation_of_a_scheduler_that_is_not_read_is_hidden_no_more_than_others() -> None:
    said = {INDEX: "7,8"}
    found = allocations(facts(said | {MARK: json.dumps(said)}), (INDEX,), {})
    assert found == allocations(facts(said), (INDEX,), {})
    assert len(found[1]) == 1


def test_own_annotations_hide_no_one_else_s() -> None:
    annotations = mark(OURS, A) | {HAMI: f"{B},NVIDIA,3000,50:;"}
    found, complaints = allocations(facts(annotations), (OURS,))
    assert [claim.origin.detail for claim in found] == [HAMI]
    assert complaints == ()


# -- the whole loop: what the sink wrote, as the source reads it


class Loop(Bench):
    """A sink, and a source that reads the very annotation that the sink writes."""

    def reads(self) -> list[str]:
        """Let the source read the pod and the join hear of it; return what it claims."""
        raw = self.api.objects[path_of("a")]
        pod, left = distilled_with_left(raw, device_annotations=(KEY,))
        assert pod is not None
        assert left == []
        self.node.say(PodsReplaced((pod,), 300 * NS), "pods", "pods")
        self.show()
        return [device.text for claim in pod.claims for device in claim.devices]

    def shown(self) -> dict[str, str]:
        """Whose word holds which GPU, by uuid."""
        attributions = self.node.snapshot().layout.attributions
        return {u: h.source for u, known in attributions.items() for h in known.holders}


@pytest.mark.looptime(start=1000)
async def test_what_the_sink_wrote_comes_back_only_as_someone_s_word() -> None:
    loop = Loop()
    loop.has(pod_of("a", asking(gpu=2)))
    async with loop.keeping():
        assert loop.reads() == []
        loop.holds(held("a", 0, 1))
        await loop.rests()
        assert loop.written() == {KEY: uuids(0, 1)}
        assert loop.reads() == []
        assert loop.shown() == {uuid_of(0): "kubelet", uuid_of(1): "kubelet"}
        # The kubelet gives it others: the old value, which is podgpu's, keeps nothing alive.
        loop.holds(held("a", 2))
        assert loop.shown() == {uuid_of(2): "kubelet"}
        await loop.rests()
        assert loop.written() == {KEY: uuids(2)}
        loop.node.say(claims(), "kubelet", "podresources")
        assert loop.reads() == []
        assert loop.shown() == {}
        # Somebody writes another value in its place: that is his word, and is read.
        theirs = json.dumps({KEY: uuid_of(0)})
        loop.api.annotate(path_of("a"), **{KEY: theirs})
        assert loop.reads() == [uuid_of(0)]
        assert loop.shown() == {uuid_of(0): "pods"}
        await loop.rests()
        loop.holds(held("a", 1))
        await loop.rests()
    assert loop.annotations()[KEY] == theirs
