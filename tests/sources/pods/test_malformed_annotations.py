"""Annotations that cannot be read are ignored, and reported with the reason."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.model import PodContainer
from sources.pods.allocations.annotation_table import _READERS, allocations
from tests.sources.pods.annotations import (
    ALIYUN,
    ALIYUN2,
    ALIYUN_DEV,
    ALIYUN_POD,
    CONFIGURED,
    DECIDED,
    HAMI,
    HAMI_MIG,
    HAMI_PHASE,
    INDEX,
    KOORDINATOR,
    ONE,
    TWO,
    VGPU,
    WITH_INIT,
    A,
    M,
    facts,
    gpu,
    koordinator,
)

ALL_ANNOTATIONS = list(_READERS)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("{", 'expected JSON, found "{"'),
        ("", 'expected JSON, found ""'),
        ("[]", 'expected an object, found "[]"'),
        ('{"gpu": {}}', '.gpu: expected a list, found "{}"'),
        ('{"gpu": [7]}', '.gpu[0]: expected an object, found "7"'),
        ('{"gpu": [{}]}', '.gpu[0].minor: expected a number, found "null"'),
        ('{"gpu": [{"minor": 0}, {"minor": -1}]}', '.gpu[1].minor: expected a number, found "-1"'),
        ('{"gpu": [{"minor": true}]}', '.gpu[0].minor: expected a number, found "true"'),
        ('{"gpu": [{"minor": 1.5}]}', '.gpu[0].minor: expected a number, found "1.5"'),
        (
            '{"gpu": [{"id": "nvidia0"}]}',
            '.gpu[0].id: expected a uuid of a GPU or MIG instance, found "nvidia0"',
        ),
        (
            '{"gpu": [{"id": 7}]}',
            '.gpu[0].id: expected a uuid of a GPU or MIG instance, found ""',
        ),
        (
            '{"gpu": [{"minor": 0, "resources": 7}]}',
            '.gpu[0].resources: expected an object, found "7"',
        ),
        (
            '{"gpu": [{"minor": 0, "resources": {"koordinator.sh/gpu-core": "half"}}]}',
            '.gpu[0].resources.koordinator.sh/gpu-core: expected a quantity, found "half"',
        ),
        (json.dumps({"gpu": [{"minor": n} for n in range(1025)]}), "more than 1024 devices"),
    ],
)
def test_malformed_annotations_of_koordinator_are_reported(value: str, text: str) -> None:
    found = allocations(facts({KOORDINATOR: value}))
    assert found == ((), {KOORDINATOR: text})


@pytest.mark.parametrize(
    ("annotations", "text"),
    [
        ({HAMI: "x;"}, "container 0, device 0: expected UUID,TYPE,MEMORY,CORES"),
        ({HAMI: f"{A},NVIDIA,3000;"}, "container 0, device 0: expected UUID,TYPE,MEMORY,CORES"),
        (
            {HAMI: "nvidia0,NVIDIA,3000,0:;"},
            'container 0, device 0: expected a uuid of a GPU or MIG instance, found "nvidia0"',
        ),
        (
            {HAMI: f"{A},NVIDIA,3000,0:{A},NVIDIA,x,0:;"},
            'container 0, device 1: memory: expected a number, found "x"',
        ),
        (
            {HAMI: f"{A},NVIDIA,3000,-1:;"},
            'container 0, device 0: cores: expected a number, found "-1"',
        ),
        ({HAMI: ";;;"}, "expected 1 containers, found 3"),
        (
            {HAMI: f"{A},NVIDIA,3000,0:;", HAMI_MIG: "["},
            f'{HAMI_MIG}: expected JSON, found "["',
        ),
        (
            {HAMI: f"{A},NVIDIA,3000,0:;", HAMI_MIG: '[{"containerIndex": 0}]'},
            f'{HAMI_MIG}: [0].deviceIndex: expected a number, found "null"',
        ),
    ],
)
def test_malformed_annotations_of_hami_are_reported(annotations: dict[str, str], text: str) -> None:
    assert allocations(facts(annotations)) == ((), {HAMI: text})


def test_an_annotation_of_hami_for_another_number_of_containers_is_reported() -> None:
    _, complaints = allocations(facts({HAMI: ";;"}, WITH_INIT))
    assert complaints == {HAMI: "expected 3 or 1 containers, found 2"}


@pytest.mark.parametrize(
    ("annotation", "value", "text"),
    [
        (VGPU, ";;;", "expected 2 containers, found 3"),
        (INDEX, "0,x", 'expected a number, found "x"'),
        (INDEX, "", 'expected a number, found ""'),
        (ALIYUN, "", 'expected a number, found ""'),
        (ALIYUN, "99999999", 'expected a number, found "99999999"'),
        (ALIYUN2, "[]", 'expected an object, found "[]"'),
        (ALIYUN2, '{"x": {}}', 'expected a number, found "x"'),
        (ALIYUN2, '{"2": {}}', "container 2: the pod has only 2"),
        (ALIYUN2, '{"0": 7}', 'container 0: expected an object, found "7"'),
        (ALIYUN2, '{"0": {"a": 1}}', 'container 0: expected a number, found "a"'),
        (
            CONFIGURED,
            '{"r": 7}',
            'r: expected UUIDs separated by commas, or a list of UUIDs, found "7"',
        ),
        (
            CONFIGURED,
            '{"r": [7]}',
            'r: expected UUIDs separated by commas, or a list of UUIDs, found "[7]"',
        ),
        (CONFIGURED, '{"r": "0"}', 'r: expected a uuid of a GPU or MIG instance, found "0"'),
        (CONFIGURED, "null", 'expected an object, found "null"'),
        (KOORDINATOR, {"gpu": []}, "is not text"),
    ],
)
def test_malformed_annotations_of_other_schedulers_are_reported(
    annotation: str, value: object, text: str
) -> None:
    good = koordinator(gpu(0)) if annotation != KOORDINATOR else {ALIYUN: "0"}
    claims, complaints = allocations(
        facts({annotation: value, DECIDED: "1", **good}, TWO), (CONFIGURED,)
    )
    assert complaints == {annotation: text}
    # Only that annotation is ignored.
    assert [d.text for claim in claims for d in claim.devices] == ["0"]


ANNOTATIONS = st.sampled_from(
    [*ALL_ANNOTATIONS, CONFIGURED, HAMI_MIG, HAMI_PHASE, ALIYUN_POD, ALIYUN_DEV, DECIDED]
)
PIECES = st.sampled_from(
    [*'{}[]":,;', A, M, "NVIDIA", "0", "7", "-1", "gpu", "minor", "id", "null", "1e999", "\ud800"]
)
TEXTS = st.one_of(st.text(), st.lists(PIECES).map("".join), st.integers(), st.none())


@given(st.dictionaries(ANNOTATIONS, TEXTS), st.sampled_from([(), ONE, TWO, WITH_INIT]))
def test_any_text_is_read_or_reported(
    annotations: dict[str, Any], containers: tuple[PodContainer, ...]
) -> None:
    claims, complaints = allocations(facts(annotations, containers), (CONFIGURED,))
    assert all(claim.devices for claim in claims)
    assert all(claim.share is None or 0 < claim.share <= 1 for claim in claims)
    assert all(text.isprintable() for text in complaints.values())


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from([A, M, "0", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["gpu", "minor", "id", "resources", "0", "1", "koordinator.sh/gpu-core"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.sampled_from([KOORDINATOR, ALIYUN2, CONFIGURED]), VALUES)
def test_any_json_is_read_or_reported(annotation: str, value: Any) -> None:
    claims, complaints = allocations(facts({annotation: json.dumps(value)}), (CONFIGURED,))
    assert not (claims and complaints)
    assert all(claim.devices for claim in claims)


DEEP = ["[" * depth + "]" * depth for depth in (100, 600, 990, 5000)]
TEMPLATES = [
    "{}",
    '{"gpu": {}}',
    '{"gpu": [{}]}',
    '{"gpu": [{"minor": {}}]}',
    '{"gpu": [{"minor": 0, "resources": {"koordinator.sh/gpu-core": {}}}]}',
    '{"nvidia.com/gpu": {}}',
    '{"0": {"1": {}}}',
]


@pytest.mark.parametrize("annotation", [*ALL_ANNOTATIONS, CONFIGURED])
@pytest.mark.parametrize("deep", DEEP, ids=len)
def test_deeply_nested_json_is_read_or_reported(annotation: str, deep: str) -> None:
    """A user who can create pods must not be able to end the daemon."""
    for template in TEMPLATES:
        hostile = template.replace("{}", deep, 1)
        annotations = {DECIDED: "1", annotation: hostile}
        claims, complaints = allocations(facts(annotations), (CONFIGURED,))
        assert not (claims and complaints)
        assert all(text.isprintable() for text in complaints.values())
