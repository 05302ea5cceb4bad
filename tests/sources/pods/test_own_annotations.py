"""Annotations that podgpu wrote are never read as claims; changes by others are."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.allocations import koordinator
from pipeline.allocations.own_annotations import MARK, mark_value, own_annotations
from pipeline.model import NS, PodsReplaced
from sources.pods.allocations.annotation_table import _READERS, allocations
from tests.sinks.pods.support import KEY, Bench, claim, container, path_of, pod_of, uuids
from tests.sources.pods.annotations import (
    ALIYUN,
    ALIYUN2,
    ALIYUN_ASSIGNED,
    CONFIGURED,
    DECIDED,
    HAMI,
    INDEX,
    VGPU,
    A,
    B,
    facts,
)
from tests.sources.pods.pod_objects import map_pod
from tests.support.nodes import claims, uuid_of

# -- the mark


@pytest.mark.parametrize(
    ("annotations", "own"),
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
        # A mark does not cover values that podgpu never writes.
        ({"a": "1", MARK: '{"a":"1"}'}, {}),
        ({"ALIYUN_COM_GPU_MEM_IDX": "0", MARK: '{"ALIYUN_COM_GPU_MEM_IDX":"0"}'}, {}),
        ({"kubernetes.io/a": "1", MARK: '{"kubernetes.io/a":"1"}'}, {}),
        ({"x.io/a": "", MARK: '{"x.io/a":""}'}, {}),
        ({"x.io/a": "{}", MARK: '{"x.io/a":"{}"}'}, {}),
        ({"x.io/a": "1,,2", MARK: '{"x.io/a":"1,,2"}'}, {}),
        ({"x.io/a": "1, 2", MARK: '{"x.io/a":"1, 2"}'}, {}),
    ],
)
def test_annotations_that_equal_the_mark_are_podgpu_s_own(
    annotations: dict[str, Any], own: dict[str, str]
) -> None:
    assert own_annotations(annotations) == own


def test_the_mark_is_sorted_and_compact() -> None:
    assert mark_value({"b": "1"}, {"a": "2", "c": "3"}) == '{"a":"2","b":"1","c":"3"}'
    assert mark_value({"a": "1"}, {"a": "2"}) == '{"a":"2"}'


TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
OTHER_NAMES = TEXTS.filter(lambda key: key != MARK)
WORDS = st.text("abc019", min_size=1, max_size=9)
NAMES = st.builds("{}.io/{}".format, WORDS, WORDS)
VALUES = st.lists(st.builds("GPU-{}".format, WORDS), min_size=1, max_size=4).map(",".join)
WRITTEN = st.dictionaries(NAMES, VALUES, max_size=4)


@given(WRITTEN, WRITTEN, st.dictionaries(OTHER_NAMES, TEXTS, max_size=3))
def test_exactly_the_marked_annotations_are_own(
    before: dict[str, str], changes: dict[str, str], others: dict[str, str]
) -> None:
    own = before | changes
    assert own_annotations({**others, **own, MARK: mark_value(before, changes)}) == own


# -- the mark, as the source reads it


def marked(annotation: str, value: str) -> dict[str, str]:
    return {annotation: value, MARK: json.dumps({annotation: value})}


@pytest.mark.parametrize("value", [A, f"{A},{B}", "rubbish"])
def test_own_annotations_are_neither_claims_nor_problems(value: str) -> None:
    assert allocations(facts(marked(CONFIGURED, value)), (CONFIGURED,)) == ((), {})
    # Without the mark, or with another value in it, the annotation counts as another program's.
    for others in ({CONFIGURED: value}, marked(CONFIGURED, "x") | {CONFIGURED: value}):
        found, [complaint] = allocations(facts(others), (CONFIGURED,))
        assert (found, complaint) == ((), CONFIGURED)


SCHEDULER_ANNOTATIONS: list[dict[str, str]] = [
    {CONFIGURED: json.dumps({KEY: A})},
    {HAMI: f"{A},NVIDIA,3000,50:;"},
    {HAMI: "rubbish"},
    {"4pd.io/vgpu-ids-new": f"{A},NVIDIA,3000,50:;"},
    {VGPU: f"{A},NVIDIA,3000,50:;"},
    {INDEX: "0", DECIDED: "1"},
    {ALIYUN: "0", ALIYUN_ASSIGNED: "true"},
    {ALIYUN2: '{"0":{"0":4}}'},
    {koordinator.ANNOTATION: json.dumps({"gpu": [{"minor": 3}]})},
]


@pytest.mark.parametrize("annotations", SCHEDULER_ANNOTATIONS)
@pytest.mark.parametrize("configured", [(), (CONFIGURED,), (CONFIGURED, INDEX, HAMI, KEY)])
def test_a_mark_does_not_hide_annotations_of_schedulers(
    annotations: dict[str, str], configured: tuple[str, ...]
) -> None:
    """A user who creates a pod can write a mark into it."""
    marks = {MARK: json.dumps(annotations)}
    assert allocations(facts(annotations | marks), configured) == allocations(
        facts(annotations), configured
    )


@pytest.mark.parametrize("annotations", SCHEDULER_ANNOTATIONS)
def test_each_of_these_annotations_is_read(annotations: dict[str, str]) -> None:
    found, complaints = allocations(facts(annotations), (CONFIGURED,))
    assert len(found) + len(complaints) == 1


def test_these_annotations_include_all_that_are_read() -> None:
    assert _READERS.keys() <= {key for annotations in SCHEDULER_ANNOTATIONS for key in annotations}


def test_a_mark_does_not_hide_annotations_of_disabled_schedulers() -> None:
    annotations = {INDEX: "7,8"}
    found = allocations(facts(annotations | {MARK: json.dumps(annotations)}), (INDEX,), {})
    assert found == allocations(facts(annotations), (INDEX,), {})
    assert len(found[1]) == 1


def test_own_annotations_do_not_hide_those_of_schedulers() -> None:
    annotations = marked(CONFIGURED, A) | {HAMI: f"{B},NVIDIA,3000,50:;"}
    found, complaints = allocations(facts(annotations), (CONFIGURED,))
    assert [claim.origin.detail for claim in found] == [HAMI]
    assert complaints == {}


# -- the whole loop: the source reads what the sink wrote


class Loop(Bench):
    """A sink, and a source that reads the annotation that the sink writes."""

    def read_pod(self) -> list[str]:
        """Read the pod with the source, report it to the join, and return the claimed devices."""
        raw = self.api.objects[path_of("a")]
        pod, omissions = map_pod(raw, device_annotations=(KEY,))
        assert pod is not None
        assert omissions == []
        self.node.say(PodsReplaced((pod,), 300 * NS), "pods", "pods")
        self.send_snapshot()
        return [device.text for claim in pod.claims for device in claim.devices]

    def sources_by_gpu(self) -> dict[str, str]:
        """Return the source of each holder, by GPU."""
        attributions = self.node.snapshot().layout.attributions
        return {
            u: holder.source
            for u, attribution in attributions.items()
            for holder in attribution.holders
        }


@pytest.mark.looptime(start=1000)
async def test_the_annotation_of_the_sink_is_claimed_only_after_a_user_changes_it() -> None:
    loop = Loop()
    loop.add_pods(pod_of("a", container(gpu=2)))
    async with loop.run_sink():
        assert loop.read_pod() == []
        loop.set_claims(claim("a", 0, 1))
        await loop.wait()
        assert loop.written() == {KEY: uuids(0, 1)}
        assert loop.read_pod() == []
        assert loop.sources_by_gpu() == {uuid_of(0): "kubelet", uuid_of(1): "kubelet"}
        # The kubelet allocates other GPUs: the old value, which is podgpu's, keeps no holder.
        loop.set_claims(claim("a", 2))
        assert loop.sources_by_gpu() == {uuid_of(2): "kubelet"}
        await loop.wait()
        assert loop.written() == {KEY: uuids(2)}
        loop.node.say(claims(), "kubelet", "podresources")
        assert loop.read_pod() == []
        assert loop.sources_by_gpu() == {}
        # A user replaces the value: it is the user's now, and is read.
        theirs = json.dumps({KEY: uuid_of(0)})
        loop.api.annotate(path_of("a"), **{KEY: theirs})
        assert loop.read_pod() == [uuid_of(0)]
        assert loop.sources_by_gpu() == {uuid_of(0): "pods"}
        await loop.wait()
        loop.set_claims(claim("a", 1))
        await loop.wait()
    assert loop.annotations()[KEY] == theirs
