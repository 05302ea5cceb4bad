"""Label selectors, and what may keep a pod off a node."""

from typing import Any

import pytest

from podgpu.doctor.cluster.daemonset_checks import scheduling_obstacles
from podgpu.doctor.cluster.objects import matches
from tests.podgpu.doctor.cluster.objects import Raw, node, taint


def expression(operator: str, *values: str, key: str = "a") -> Raw:
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})


SELECTORS: list[tuple[Any, dict[str, str], bool]] = [
    ({}, {}, True),
    ({}, {"a": "1"}, True),
    (None, {}, False),
    ("nonsense", {"a": "1"}, False),
    ({"matchLabels": {"a": "1"}}, {"a": "1", "b": "2"}, True),
    ({"matchLabels": {"a": "1"}}, {"a": "2"}, False),
    ({"matchLabels": {"a": "1"}}, {}, False),
    ({"matchExpressions": [expression("In", "1", "2")]}, {"a": "2"}, True),
    ({"matchExpressions": [expression("In", "1")]}, {}, False),
    ({"matchExpressions": [expression("NotIn", "1")]}, {}, True),
    ({"matchExpressions": [expression("NotIn", "1")]}, {"a": "1"}, False),
    ({"matchExpressions": [expression("Exists")]}, {"a": ""}, True),
    ({"matchExpressions": [expression("Exists")]}, {}, False),
    ({"matchExpressions": [expression("DoesNotExist")]}, {}, True),
    ({"matchExpressions": [expression("DoesNotExist")]}, {"a": ""}, False),
    ({"matchExpressions": [expression("Like", "4")]}, {"a": "4"}, False),
    (
        {"matchLabels": {"a": "1"}, "matchExpressions": [expression("Exists", key="b")]},
        {"a": "1"},
        False,
    ),
]


@pytest.mark.parametrize(("selector", "labels", "selected"), SELECTORS)
def test_a_label_selector_matches_as_in_kubernetes(
    selector: Any, labels: dict[str, str], selected: bool
) -> None:
    assert matches(selector, labels) is selected


def affinity(*terms: Raw) -> Raw:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    for each in required.values():
        each["nodeSelectorTerms"] = list(terms)  # type: ignore[assignment]
    return {"affinity": {"nodeAffinity": required}}


def term(*expressions: Raw, **fields: Raw) -> Raw:
    return {"matchExpressions": list(expressions)} | fields


NODE = node("gpu-1", a="1")
OBSTACLES: list[tuple[Raw, list[str]]] = [
    ({}, []),
    ({"nodeSelector": {"a": "1"}}, []),
    ({"nodeSelector": {"a": "2"}}, ["nodeSelector requires a=2, but the node has a=1"]),
    ({"nodeSelector": {"b": "1"}}, ["nodeSelector requires b=1, but the node has no such label"]),
    (
        affinity(term(expression("In", "2", "3")), term(expression("Exists", key="b"))),
        ["affinity requires a In (2, 3) or b Exists"],
    ),
    (affinity(term()), ["affinity requires an empty term, which matches no node"]),
    (
        affinity({"matchFields": [expression("In", "gpu-2", key="metadata.name")]}),
        ["affinity requires metadata.name In (gpu-2)"],
    ),
    (
        {"nodeSelector": {"b": "1"}} | affinity(term(expression("In", "2"))),
        ["nodeSelector requires b=1, but the node has no such label"],
    ),
]


@pytest.mark.parametrize(("spec", "expected"), OBSTACLES)
def test_labels_that_prevent_a_pod_from_being_scheduled(spec: Raw, expected: list[str]) -> None:
    assert [reason for reason, _ in scheduling_obstacles(spec, NODE)] == expected


TAINTS: list[tuple[Raw, list[Raw], bool]] = [
    (taint("nvidia.com/gpu"), [], False),
    (taint("nvidia.com/gpu"), [{"key": "other", "operator": "Exists"}], False),
    (taint("k", "NoExecute"), [{"key": "other", "operator": "Exists"}], False),
    (taint("k", "PreferNoSchedule"), [], True),
    (taint("node.kubernetes.io/not-ready", "NoExecute"), [], True),
    (taint("node.kubernetes.io/unschedulable"), [], True),
]


@pytest.mark.parametrize(("node_taint", "tolerations", "free"), TAINTS)
def test_taints_that_prevent_a_pod_from_being_scheduled(
    node_taint: Raw, tolerations: list[Raw], free: bool
) -> None:
    found = scheduling_obstacles({"tolerations": tolerations}, node(taints=(node_taint,)))
    assert (found == []) is free
    if not free:
        (reason, fix), *_ = found
        assert node_taint["key"] in reason
        assert f"{{key: {node_taint['key']}, operator: Exists}}" in fix


@pytest.mark.parametrize(
    "toleration",
    [
        {"operator": "Exists", "effect": "NoExecute"},
        {"key": "k", "operator": "Equal", "value": "w"},
    ],
)
def test_a_toleration_that_names_the_taint_may_have_another_value_or_effect(
    toleration: Raw,
) -> None:
    made = node(taints=(taint("k", value="v"),))
    ((reason, fix),) = scheduling_obstacles({"tolerations": [toleration]}, made)
    assert reason == "a toleration has another value or effect than the node's taint"
    assert "tolerations" in fix


def test_a_fix_contains_a_complete_command() -> None:
    (_, fix), *_ = scheduling_obstacles({"nodeSelector": {"x/y": "true"}}, node("gpu-9"))
    assert "kubectl label node gpu-9 x/y=true" in fix
