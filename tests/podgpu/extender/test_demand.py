"""The number of GPUs that a pod requests, and the topology that it requires."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podgpu.extender.node_selection.pod_demand import (
    Demand,
    Pod,
    Requirement,
    demand,
    needed,
    whole,
)
from tests.podgpu.extender.cluster import GPU, container, pod

C = container
ALWAYS = "Always"


def read(raw: dict[str, Any]) -> Pod:
    return msgspec.convert(raw, Pod)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("4", 4),
        ("+4", 4),
        ("08", 8),
        (8, 8),
        (2.0, 2),
        ("4.0", 4),
        ("2k", 2000),
        ("1Ki", 1024),
        ("1e3", 1000),
        ("1E1", 10),
        ("9E", 9 * 10**18),
        ("4000m", 4),
        ("1.5k", 1500),
        ("10e-1", 1),
        ("-0", 0),
    ],
)
def test_a_whole_quantity_is_parsed(text: str | float, number: int) -> None:
    assert whole(text) == number


@pytest.mark.parametrize(
    "text",
    ["", "x", "1.5", "-1", "500m", "1 ", " 1", "1k1", "1ki", "1e", "e3", "1e100", "9E19",
     "\u0664", "9" * 30, -3, 0.5, float("nan"), float("inf"), 1e300, "16E", 2**63],
)  # fmt: skip
def test_a_quantity_that_is_not_a_whole_number_is_refused(text: str | float) -> None:
    with pytest.raises(ValueError, match=r"not a quantity|not a whole number"):
        whole(text)


@given(st.integers(0, 2**63 - 1))
def test_every_whole_number_parses_to_itself(number: int) -> None:
    if number < 10**18:
        assert whole(str(number)) == whole(number) == number


@pytest.mark.parametrize(
    ("containers", "init", "expected"),
    [
        ([], [], 0),
        ([C()], [C()], 0),
        ([C("1")], [], 1),
        ([C(1)], [], 1),
        ([C("1"), C("2"), C()], [], 3),
        ([C("2", limits_only=True)], [], 2),
        # An init container ends before the other containers start.
        ([C("2")], [C("4")], 4),
        ([C("4")], [C("2"), C("3")], 4),
        ([C("1")], [C("2"), C("2")], 2),
        # A sidecar keeps running.
        ([C("2")], [C("1", restart=ALWAYS)], 3),
        ([C("2")], [C("1", restart=ALWAYS), C("4")], 5),
        ([C("2")], [C("4"), C("1", restart=ALWAYS)], 4),
        ([C("1")], [C("1", restart=ALWAYS), C("2", restart=ALWAYS), C("1")], 4),
        ([C()], [C("1", restart=ALWAYS), C("5"), C("3", restart=ALWAYS)], 6),
        ([C("2")], [C("1", restart="OnFailure")], 2),
    ],
)
def test_the_demand_of_a_pod_is_its_highest_simultaneous_need(
    containers: list[Any], init: list[Any], expected: int
) -> None:
    assert needed(read(pod(*containers, init=init)), GPU) == expected


def kubernetes(containers: list[int], init: list[tuple[int, bool]]) -> int:
    """Calculate the same in another way: the most GPUs needed at any one time."""
    moments, sidecars = [], 0
    for count, stays in init:
        moments.append(sidecars + count)
        sidecars += count if stays else 0
    return max([*moments, sidecars + sum(containers)])


AMOUNT = st.integers(0, 8)


@given(st.lists(AMOUNT, max_size=4), st.lists(st.tuples(AMOUNT, st.booleans()), max_size=5))
def test_the_demand_is_the_most_gpus_needed_at_any_one_time(
    containers: list[int], init: list[tuple[int, bool]]
) -> None:
    made = pod(
        *(C(count) for count in containers),
        init=[C(count, restart=ALWAYS if stays else None) for count, stays in init],
    )
    assert needed(read(made), GPU) == kubernetes(containers, init)


def test_the_request_takes_precedence_over_the_limit() -> None:
    both = {"resources": {"requests": {GPU: "1"}, "limits": {GPU: "2"}}}
    assert needed(read(pod(both)), GPU) == 1


def test_the_demand_is_the_sum_over_several_resources() -> None:
    other = {"resources": {"limits": {"example.com/gpu": "3", "cpu": "1500m"}}}
    made = read(pod(C("2"), other))
    assert demand(made, [GPU]).count == 2
    assert demand(made, [GPU, "example.com/gpu"]).count == 5
    assert demand(made, ["example.com/other"]).count == 0


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"metadata": {}, "spec": {}},
        {"metadata": {"annotations": None}, "spec": {"containers": None, "initContainers": None}},
        {"spec": {"containers": [{"resources": {"requests": None}}, {"resources": None}]}},
    ],
)
def test_members_that_go_omits_or_writes_as_null_are_accepted(raw: dict[str, Any]) -> None:
    assert demand(read(raw), [GPU]) == Demand(0)


@pytest.mark.parametrize("required", list(Requirement))
def test_every_requirement_is_accepted(required: Requirement) -> None:
    found = demand(read(pod(gpus=2, require=required.value)), [GPU])
    assert found == Demand(2, required)


@pytest.mark.parametrize("word", ["", "NVLINK", "nvlink ", "system", "pix", "x" * 1000])
def test_an_unknown_requirement_is_reported_with_the_known_ones(word: str) -> None:
    found = demand(read(pod(gpus=2, require=word)), [GPU])
    assert found.requirement is None
    assert "use one of nvlink, single, multiple, hostbridge, node" in found.wrong
    assert len(found.wrong) < 150


def test_a_pod_that_requests_no_gpu_requires_nothing() -> None:
    assert demand(read(pod(gpus="0", require="nonsense")), [GPU]) == Demand(0)


def test_an_invalid_quantity_is_refused() -> None:
    with pytest.raises(ValueError, match="'many' is not a quantity"):
        demand(read(pod(gpus="many")), [GPU])
