"""Which annotations of a pod are written: tables, and pods of any shape."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.allocations.own_annotations import MARK, own_annotations
from pipeline.kube.json_access import as_dict
from sinks.pods.annotation_decision import Decision, decide
from sinks.pods.held_devices import DesiredAnnotations
from tests.sinks.pods.support import KEY, MIG, container, pod_of
from tests.sources.pods.json_mutation import DEEP, JSON, paths, replaced
from tests.support.kube import Raw
from tests.support.objects import merged

A, B, M = "GPU-a", "GPU-b", "MIG-m"
GPUS = frozenset({KEY, MIG})


def desired(
    *held: tuple[str, str], uid: str = "uid-a", resources: frozenset[str] = GPUS
) -> DesiredAnnotations:
    """Return the devices that a pod holds, each with the names of its containers (`a,b`)."""
    return DesiredAnnotations(
        uid, tuple((uuid, tuple(names.split(","))) for uuid, names in held), resources
    )


def mark(**values: str) -> dict[str, str]:
    return {MARK: json.dumps({{"gpu": KEY, "mig": MIG}[k]: v for k, v in values.items()})}


def changes(decision: Decision) -> dict[str, str] | None:
    """Return the annotations that a decision writes, after a check of the rest of the patch."""
    if decision.changes is None:
        assert decision.keys == ()
        return None
    metadata: Any = decision.changes["metadata"]
    annotations: dict[str, str] = metadata.pop("annotations")
    assert decision.changes == {"metadata": {"uid": "uid-a", "resourceVersion": "1"}}
    assert set(annotations) == {*decision.keys, MARK}
    return annotations


@pytest.mark.parametrize(
    ("present", "written"),
    [
        pytest.param(None, {KEY: A, MARK: '{"nvidia.com/gpu":"GPU-a"}'}, id="no annotations"),
        pytest.param({}, {KEY: A, MARK: '{"nvidia.com/gpu":"GPU-a"}'}, id="empty annotations"),
        pytest.param({KEY: A} | mark(gpu=A), None, id="own and right"),
        pytest.param(
            {KEY: B} | mark(gpu=B), {KEY: A, MARK: '{"nvidia.com/gpu":"GPU-a"}'}, id="outdated"
        ),
        pytest.param(
            mark(gpu=B), {KEY: A, MARK: '{"nvidia.com/gpu":"GPU-a"}'}, id="removed by others"
        ),
        pytest.param(
            {MIG: M} | mark(mig=M),
            {KEY: A, MARK: '{"nvidia.com/gpu":"GPU-a","nvidia.com/mig-1g.10gb":"MIG-m"}'},
            id="the mark keeps other own annotations",
        ),
        pytest.param(
            {MIG: "changed"} | mark(mig=M),
            {KEY: A, MARK: '{"nvidia.com/gpu":"GPU-a"}'},
            id="the mark drops annotations that others changed",
        ),
        pytest.param(
            {MARK: "not ours to read"},
            {KEY: A, MARK: '{"nvidia.com/gpu":"GPU-a"}'},
            id="invalid mark",
        ),
    ],
)
def test_own_annotations_are_written_and_corrected(
    present: dict[str, str] | None, written: dict[str, str] | None
) -> None:
    decision = decide(pod_of("a", annotations=present), desired((A, "main")), "node-1")
    assert changes(decision) == written
    assert (decision.reason, decision.foreign, decision.unclear) == ("", (), ())


@pytest.mark.parametrize(
    ("present", "foreign"),
    [
        ({KEY: B}, (KEY,)),
        ({KEY: ""}, (KEY,)),
        ({KEY: B} | mark(gpu=A), (KEY,)),
        ({KEY: B, MARK: "{"}, (KEY,)),
        ({KEY: B, MARK: json.dumps({KEY: [B]})}, (KEY,)),
        ({KEY: json.dumps({KEY: A})}, (KEY,)),
        ({KEY: json.dumps({KEY: B})} | mark(gpu=json.dumps({KEY: B})), (KEY,)),
        ({KEY: ""} | mark(gpu=""), (KEY,)),
        ({KEY: A}, ()),  # the same value, but not written by podgpu
    ],
)
def test_annotations_of_other_programs_stay(
    present: dict[str, str], foreign: tuple[str, ...]
) -> None:
    decision = decide(pod_of("a", annotations=present), desired((A, "main")), "node-1")
    assert decision == Decision(None, (), "", foreign, ())


@pytest.mark.parametrize(
    ("pod", "uid", "reason"),
    [
        (pod_of("a", uid="other"), "uid-a", "is another pod of that name"),
        (pod_of("a", node="node-2"), "uid-a", "is not on this node"),
        (pod_of("a", node=""), "uid-a", "is not on this node"),
        (pod_of("a", phase="Succeeded"), "uid-a", "has ended"),
        (pod_of("a", phase="Failed"), "uid-a", "has ended"),
        (pod_of("a", metadata={"deletionTimestamp": "x"}), "uid-a", "is being deleted"),
        (pod_of("a", metadata={"uid": ""}), "", "has no identity"),
        (pod_of("a", metadata={"resourceVersion": None}), "uid-a", "has no identity"),
        (pod_of("a"), "", ""),
        (pod_of("a", phase="Pending"), "uid-a", ""),
        (pod_of("a", annotations={"kubernetes.io/config.mirror": "5ea1"}), "5ea1", ""),
        (
            pod_of("a", annotations={"kubernetes.io/config.mirror": "5ea1"}),
            "0ther",
            "is another pod of that name",
        ),
        # Any pod can have this annotation; only mirror pods have the other one.
        (
            pod_of("a", annotations={"kubernetes.io/config.hash": "5ea1"}),
            "5ea1",
            "is another pod of that name",
        ),
    ],
)
def test_other_pods_and_ended_pods_are_not_annotated(pod: Raw, uid: str, reason: str) -> None:
    decision = decide(pod, desired((A, "main"), uid=uid), "node-1")
    assert decision.reason == reason
    assert (decision.changes is None) is bool(reason)


TWO = (container("main", gpu=1), container("side", gpu=2))


@pytest.mark.parametrize(
    ("containers", "held", "written", "unclear"),
    [
        pytest.param(
            TWO, [(A, "main"), (B, "side")], {KEY: "GPU-a,GPU-b"}, [], id="two containers"
        ),
        pytest.param(
            TWO, [(A, "main,side"), (B, "side")], {KEY: "GPU-a,GPU-b"}, [], id="shared device"
        ),
        pytest.param(TWO, [(B, "side"), (A, "main")], {KEY: "GPU-b,GPU-a"}, [], id="device order"),
        pytest.param(
            TWO, [(A, ""), (B, "")], {KEY: "GPU-a,GPU-b"}, [], id="claims on the whole pod"
        ),
        pytest.param(
            [container("main", gpu=1), container("side", mig=1)],
            [(A, "main"), (M, "side")],
            {KEY: A, MIG: M},
            [],
            id="two resources",
        ),
        pytest.param(
            [container("main", gpu=1, **{"rdma/hca": 1, "cpu": 4, "memory": "1Gi"})],
            [(A, "main")],
            {KEY: A},
            [],
            id="other resources are ignored",
        ),
        pytest.param(
            [container("main", gpu=1, mig=0)], [(A, "main")], {KEY: A}, [],
            id="zero of another resource",
        ),
        pytest.param(
            [container("main", gpu="1k")], [(A, "main"), (B, "main")], {KEY: "GPU-a,GPU-b"}, [],
            id="amount with a suffix",
        ),
        pytest.param(
            [container("main")], [(A, "main")], {}, [("none", "", "main")], id="no GPU requested"
        ),
        pytest.param(
            [{"name": "main"}], [(A, "main")], {}, [("none", "", "main")], id="no resources"
        ),
        pytest.param(TWO, [(A, "gone")], {}, [("none", "", "gone")], id="unknown container"),
        pytest.param(
            [container("main", gpu=1, mig=1)],
            [(A, "main")],
            {},
            [("several", f"{KEY},{MIG}", "main")],
            id="several resources in one container",
        ),
        pytest.param(
            TWO, [(A, "main"), (B, "main")], {}, [("more", KEY, "main")], id="more than requested"
        ),
        pytest.param(
            [*TWO, container("third", mig=1)],
            [(A, "main"), (B, "main"), ("GPU-c", "side"), (M, "third")],
            {MIG: M},
            [("more", KEY, "main")],
            id="an unclear resource is not written at all",
        ),
        pytest.param(
            [container("main", gpu=1), {"name": "side"}],
            [(A, "main"), (B, "side")],
            {KEY: A},
            [("none", "", "side")],
            id="a container without a request is left out",
        ),
    ],
)  # fmt: skip
def test_devices_are_written_under_the_resource_that_their_container_requests(
    containers: list[Raw],
    held: list[tuple[str, str]],
    written: dict[str, str],
    unclear: list[tuple[str, str, str]],
) -> None:
    for pod in (pod_of("a", *containers), pod_of("a", {"name": "x"}, init=tuple(containers))):
        decision = decide(pod, desired(*held), "node-1")
        made = changes(decision) or {}
        made.pop(MARK, None)
        assert made == written
        found = [(one.trouble, ",".join(one.resources), one.container) for one in decision.unclear]
        assert found == unclear


@pytest.mark.parametrize(
    ("key", "valid"),
    [
        ("nvidia.com/gpu", True),
        ("nvidia.com/gpu.shared", True),
        ("nvidia.com/mig-1g.10gb.me", True),
        ("koordinator.sh/gpu", True),
        ("card", False),
        ("", False),
        ("nvidia.com/", False),
        ("/gpu", False),
        ("nvidia.com/a/b", False),
        ("nvidia.com/gpu ", False),
        ("Nvidia.com/gpu", False),
        ("nvidia..com/gpu", False),
        ("nvidia.com/-gpu", False),
        ("nvidia.com/" + "g" * 63, True),
        ("nvidia.com/" + "g" * 64, False),
        ("a." * 126 + "a/gpu", True),
        ("a." * 127 + "a/gpu", False),
        ("kubernetes.io/gpu", False),
        ("node.kubernetes.io/gpu", False),
        ("k8s.io/gpu", False),
        ("x.k8s.io/gpu", False),
        ("podgpu.io/wrote", False),
        ("mykubernetes.io/gpu", True),
    ],
)
def test_only_resource_names_that_are_valid_annotation_keys_are_written(
    key: str, valid: bool
) -> None:
    pod = pod_of("a", container("main", **{key: 1}))
    decision = decide(pod, desired((A, "main"), resources=frozenset({key})), "node-1")
    assert ([one.trouble for one in decision.unclear] == ["key"]) is not valid
    assert (decision.changes is not None) is valid


FULL = pod_of(
    "a",
    container("main", gpu=2),
    container("side", mig=1),
    annotations={KEY: B, **mark(gpu=B), "kubernetes.io/config.mirror": "5ea1"},
    metadata={"deletionTimestamp": None},
    init=(container("first", gpu=1),),
)


@pytest.mark.parametrize("by", [DEEP, [], {}, [[]], {"a": []}], ids=lambda by: type(by).__name__)
def test_any_shape_at_any_place_of_the_pod_is_accepted(by: Any) -> None:
    for path in paths(FULL):
        decision = decide(as_dict(replaced(FULL, path, by)), desired((A, "main")), "node-1")
        assert decision.changes is None or not decision.reason


@given(st.lists(st.tuples(st.sampled_from(paths(FULL)), JSON), min_size=1, max_size=2))
def test_any_value_at_any_place_of_the_pod_is_accepted(
    strange: list[tuple[tuple[Any, ...], Any]],
) -> None:
    pod: Any = FULL
    for path, by in strange:
        with suppress(KeyError, IndexError, TypeError, AttributeError):  # the path no longer exists
            pod = replaced(pod, path, by)
    decision = decide(as_dict(pod), desired((A, "main"), (M, "side")), "node-1")
    assert decision.changes is None or not decision.reason
    if decision.changes is not None:
        # The patch is valid for any API server: annotations are strings.
        annotations = as_dict(as_dict(decision.changes["metadata"])["annotations"])
        assert all(isinstance(value, str) for value in annotations.values())


VALUES = st.sampled_from(["", A, B, "GPU-a,GPU-b", "x"])
MARKS = st.dictionaries(st.sampled_from([KEY, MIG]), VALUES).map(json.dumps) | st.text(max_size=3)


@given(
    st.dictionaries(st.sampled_from([KEY, MIG, "team"]), VALUES),
    st.none() | MARKS,
    st.sets(st.sampled_from([A, B]), min_size=1),
)
def test_other_programs_values_stay_and_own_values_are_right(
    present: dict[str, str], marks: str | None, held: set[str]
) -> None:
    before = present | ({MARK: marks} if marks is not None else {})
    pod = pod_of("a", annotations=before)
    desired_annotations = desired(*((uuid, "main") for uuid in sorted(held)))
    decision = decide(pod, desired_annotations, "node-1")
    now = merged(pod, decision.changes or {})["metadata"]["annotations"]
    ours_before, ours = own_annotations(before), own_annotations(now)
    for key, value in present.items():
        assert now[key] == value or (key == KEY and key in ours_before)
    if KEY in ours or KEY not in present:
        assert now[KEY] == ours[KEY] == ",".join(sorted(held))
    # A second decision changes nothing.
    second = decide(pod_of("a", annotations=now), desired_annotations, "node-1")
    assert (second.changes, second.foreign) == (None, decision.foreign)
