"""What becomes of a pod as the API server sends it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.model import Instant, Pod, PodContainer, PodInfo
from sources.pods.pod_mapper import requested_resources
from sources.pods.timestamps import Timestamps
from tests.sources.pods.anywhere import DEEP, JSON, paths, replaced
from tests.sources.pods.raws import (
    BASE,
    at,
    distilled,
    distilled_with_left,
    raw_container,
    raw_pod,
    raw_status,
)

LATER = "2026-11-01T09:30:00Z"


def test_a_plain_pod() -> None:
    assert distilled(raw_pod()) == Pod(
        PodInfo("uid-train-0", "ml", "train-0", "Running", qos="BestEffort"),
        at(),
        containers=(PodContainer("main", "app", "id-main", at()),),
        requests=(),
    )


@pytest.mark.parametrize(
    ("phase", "ended"),
    [
        ("Pending", False),
        ("Running", False),
        ("Unknown", False),
        ("", False),
        ("Succeeded", True),
        ("Failed", True),
    ],
)
def test_the_end_of_a_pod(phase: str, ended: bool) -> None:
    pod = distilled(raw_pod(status={"phase": phase}))
    assert (pod.info.phase, pod.ended) == (phase, ended)
    assert [c.ended for c in pod.containers] == [ended]


def test_being_deleted_is_not_the_end() -> None:
    pod = distilled(raw_pod(metadata={"deletionTimestamp": LATER}))
    assert not pod.ended
    assert not pod.containers[0].ended


def test_a_pod_that_the_kubelet_has_not_taken_on() -> None:
    pod = distilled(raw_pod(status={"startTime": None, "containerStatuses": None}))
    assert pod.started is None
    assert pod.containers == (PodContainer("main"),)


@pytest.mark.parametrize(
    ("state", "last", "container_id", "started"),
    [
        ({"running": {"startedAt": LATER}}, {}, "id-main", LATER),
        ({"terminated": {"startedAt": LATER, "exitCode": 1}}, {}, "id-main", LATER),
        ({"waiting": {"reason": "ContainerCreating"}}, {}, "id-main", ""),
        (
            {"waiting": {"reason": "CrashLoopBackOff"}},
            {"terminated": {"startedAt": LATER, "containerID": "containerd://before"}},
            "id-main",
            LATER,
        ),
        ({}, {}, "id-main", ""),
    ],
)
def test_when_a_container_started_last(
    state: dict[str, Any], last: dict[str, Any], container_id: str, started: str
) -> None:
    given_out = raw_status() | {"state": state, "lastState": last}
    [container] = distilled(raw_pod(status={"containerStatuses": [given_out]})).containers
    assert container.container_id == container_id
    assert container.started == (at(started) if started else None)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("containerd://abc", "abc"),
        ("cri-o://abc", "abc"),
        ("docker://abc", "abc"),
        ("abc", "abc"),
        ("", ""),
        (None, ""),
        (7, ""),
    ],
)
def test_a_containers_id_without_its_runtime(said: object, found: str) -> None:
    given_out = raw_status() | {"containerID": said, "state": {}}
    [container] = distilled(raw_pod(status={"containerStatuses": [given_out]})).containers
    assert container.container_id == found


DONE = {"terminated": {"exitCode": 0, "startedAt": LATER}}
BROKE = {"terminated": {"exitCode": 1, "startedAt": LATER}}
RULES = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]


@pytest.mark.parametrize(
    ("kind", "policy", "own", "state", "ended"),
    [
        ("app", "Always", {}, DONE, False),
        ("app", "Always", {}, BROKE, False),
        ("app", "OnFailure", {}, DONE, True),
        ("app", "OnFailure", {}, BROKE, False),
        ("app", "Never", {}, DONE, True),
        ("app", "Never", {}, BROKE, True),
        ("app", "Never", {}, {"running": {"startedAt": LATER}}, False),
        ("app", "Never", {}, {"waiting": {}}, False),
        ("app", "Always", {"restartPolicy": "Never"}, BROKE, True),
        ("app", "Never", {"restartPolicy": "Always"}, BROKE, False),
        ("app", "Always", {"restartPolicy": "Never", "restartPolicyRules": RULES}, BROKE, False),
        ("init", "Always", {}, DONE, True),
        ("init", "Always", {}, BROKE, False),
        ("init", "Never", {}, BROKE, True),
        ("sidecar", "Never", {"restartPolicy": "Always"}, DONE, False),
        ("ephemeral", "Always", {}, BROKE, True),
    ],
)
def test_when_a_container_has_ended_permanently(
    kind: str, policy: str, own: dict[str, Any], state: dict[str, Any], ended: bool
) -> None:
    place, given_out = {
        "app": ("containers", "containerStatuses"),
        "ephemeral": ("ephemeralContainers", "ephemeralContainerStatuses"),
    }.get(kind, ("initContainers", "initContainerStatuses"))
    raw = raw_pod(
        spec={"restartPolicy": policy, "containers": [], place: [raw_container("it", **own)]},
        status={"containerStatuses": [], given_out: [raw_status("it", **state)]},
    )
    [container] = distilled(raw).containers
    assert (container.kind, container.ended) == (kind, ended)
    leaving = {**raw, "metadata": {**raw["metadata"], "deletionTimestamp": LATER}}
    [container] = distilled(leaving).containers
    assert container.ended == ("terminated" in state)


def test_containers_come_in_the_order_of_the_spec() -> None:
    raw = raw_pod(
        spec={
            "initContainers": [raw_container("a"), raw_container("b", restartPolicy="Always")],
            "containers": [raw_container("d"), raw_container("c")],
            "ephemeralContainers": [raw_container("e")],
        },
        status={"containerStatuses": [raw_status("c"), raw_status("d")]},
    )
    found = [(c.name, c.kind, c.container_id) for c in distilled(raw).containers]
    assert found == [
        ("a", "init", ""),
        ("b", "sidecar", ""),
        ("d", "app", "id-d"),
        ("c", "app", "id-c"),
        ("e", "ephemeral", ""),
    ]


def reference(kind: str, name: str, *, controller: object = True) -> dict[str, Any]:
    return {"kind": kind, "name": name, "controller": controller}


@pytest.mark.parametrize(
    ("references", "labels", "owner"),
    [
        ([], {}, ("", "")),
        (None, {}, ("", "")),
        ([reference("StatefulSet", "db")], {}, ("StatefulSet", "db")),
        ([reference("Job", "nightly-29000000")], {}, ("Job", "nightly-29000000")),
        ([reference("DaemonSet", "agent")], {"pod-template-hash": "x"}, ("DaemonSet", "agent")),
        (
            [reference("ReplicaSet", "web-5d4f")],
            {"pod-template-hash": "5d4f"},
            ("Deployment", "web"),
        ),
        (
            [reference("ReplicaSet", "we-b-5d4f")],
            {"pod-template-hash": "5d4f"},
            ("Deployment", "we-b"),
        ),
        ([reference("ReplicaSet", "bare")], {}, ("ReplicaSet", "bare")),
        (
            [reference("ReplicaSet", "bare")],
            {"pod-template-hash": "5d4f"},
            ("ReplicaSet", "bare"),
        ),
        ([reference("ReplicaSet", "bare")], {"pod-template-hash": ""}, ("ReplicaSet", "bare")),
        ([reference("Node", "node-1")], {}, ("", "")),
        ([reference("Gang", "g", controller=False)], {}, ("", "")),
        ([reference("Gang", "g", controller=None), reference("RayJob", "r")], {}, ("RayJob", "r")),
        ([7, {"controller": True}], {}, ("", "")),
    ],
)
def test_the_workload(references: Any, labels: dict[str, str], owner: tuple[str, str]) -> None:
    info = distilled(raw_pod(labels=labels, metadata={"ownerReferences": references})).info
    assert (info.owner_kind, info.owner_name) == owner


@pytest.mark.parametrize(
    ("annotations", "uid"),
    [
        ({}, ""),
        ({"kubernetes.io/config.mirror": "abc", "kubernetes.io/config.hash": "abc"}, "abc"),
        ({"kubernetes.io/config.mirror": "abc"}, "abc"),
        # Anybody's pod may say so of itself, and would get what its predecessor held.
        ({"kubernetes.io/config.hash": "abc"}, ""),
        ({"kubernetes.io/config.mirror": 7}, ""),
    ],
)
def test_the_uid_that_a_static_pod_has_on_its_node(annotations: dict[str, Any], uid: str) -> None:
    assert distilled(raw_pod(annotations=annotations)).static_uid == uid


@pytest.mark.parametrize(
    ("spec", "wants"),
    [
        ({}, False),
        ({"containers": [raw_container(resources={"limits": {"cpu": "1"}})]}, False),
        ({"containers": [raw_container(resources={"limits": {"nvidia.com/gpu": "1"}})]}, True),
        ({"containers": [raw_container(resources={"requests": {"nvidia.com/gpu": 1}})]}, True),
        ({"containers": [raw_container(resources={"limits": {"nvidia.com/gpu": "0"}})]}, False),
        (
            {"containers": [raw_container(resources={"limits": {"requests.kubernetes.io/x": 1}})]},
            False,
        ),
        ({"initContainers": [raw_container("i", resources={"limits": {"a.b/c": "1"}})]}, True),
        ({"resourceClaims": [{"name": "gpu"}]}, True),
        ({"containers": [raw_container(resources=None), 7]}, False),
    ],
)
def test_whether_a_pod_wants_devices(spec: dict[str, Any], wants: bool) -> None:
    assert distilled(raw_pod(spec=spec)).wants_devices is wants


def test_nothing_of_labels_and_annotations_is_reported_unless_asked_for() -> None:
    info = distilled(raw_pod(labels={"app": "x"}, annotations={"note": "y"})).info
    assert (info.labels, info.annotations) == ((), ())


def test_labels_that_are_asked_for_come_sorted() -> None:
    raw = raw_pod(
        labels={"team": "a", "app.kubernetes.io/name": "b", "other": "c", "Team": "d"},
        annotations={"cost": "9", "team": "e"},
    )
    info = distilled(raw, labels=("team", "app.*"), annotations=("cos?",)).info
    assert info.labels == (("app.kubernetes.io/name", "b"), ("team", "a"))
    assert info.annotations == (("cost", "9"),)


@pytest.mark.parametrize(
    ("globs", "patterns", "passes"),
    [
        ((), ("team",), ["my-team", "team"]),
        ((), ("^team$",), ["team"]),
        ((), ("^app[.]", "^team$"), ["app.kubernetes.io/name", "team"]),
        (("other",), ("^team$",), ["other", "team"]),
        ((), ("^nothing$",), []),
    ],
)
def test_labels_pass_by_patterns_of_their_names(
    globs: tuple[str, ...], patterns: tuple[str, ...], passes: list[str]
) -> None:
    names = ("team", "my-team", "app.kubernetes.io/name", "other")
    raw = raw_pod(labels=dict.fromkeys(names, "x"), annotations={"team": "y"})
    info = distilled(raw, labels=globs, label_patterns=patterns).info
    assert [name for name, _ in info.labels] == passes
    assert info.annotations == ()


def test_too_many_or_too_long_are_cut_by_name_and_counted() -> None:
    raw = raw_pod(
        labels={f"l{number:02}": "x" for number in range(30)},
        annotations={"a": "x" * 1025, "b": "x" * 1024, "c": 7},
    )
    pod, left = distilled_with_left(raw, labels=("*",), annotations=("*",), max_labels=20)
    assert pod is not None
    assert [name for name, _ in pod.info.labels] == [f"l{number:02}" for number in range(20)]
    assert pod.info.annotations == (("b", "x" * 1024), ("c", ""))
    assert [(given_out.pod, given_out.omitted) for given_out in left] == [("ml/train-0", 11)]


@pytest.mark.parametrize(
    ("stamp", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:01.5Z", 1.5),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:00", None),
        ("yesterday", None),
        ("", None),
        (None, None),
        (7, None),
        ("9999-12-31T23:59:59-23:59", None),
        ("0001-01-01T00:00:00Z", None),
    ],
)
def test_timestamps(stamp: object, seconds: float | None) -> None:
    found = Timestamps(lambda: BASE).parse(stamp)
    if seconds is None:
        assert found is None
    else:
        wall_ns = round(seconds * 1e9)
        assert found == Instant(wall_ns - BASE.wall_ns + BASE.mono_ns, wall_ns)


@pytest.mark.parametrize("missing", ["uid", "name", "namespace"])
def test_what_has_no_identity_is_no_pod(missing: str) -> None:
    raw = raw_pod()
    del raw["metadata"][missing]
    assert distilled_with_left(raw) == (None, [])


FULL = raw_pod(
    labels={"pod-template-hash": "x"},
    annotations={"kubernetes.io/config.mirror": "x"},
    metadata={"ownerReferences": [reference("ReplicaSet", "a-x")]},
    spec={
        "initContainers": [raw_container("i", restartPolicy="Always")],
        "containers": [raw_container(resources={"limits": {"nvidia.com/gpu": "1"}})],
    },
    status={
        "containerStatuses": [
            raw_status() | {"state": DONE, "lastState": BROKE},
        ]
    },
)


@pytest.mark.parametrize("by", [DEEP, [], {}, [[]], {"a": []}], ids=lambda by: type(by).__name__)
def test_no_shape_anywhere_is_too_strange(by: Any) -> None:
    for path in paths(FULL):
        pod, _ = distilled_with_left(replaced(FULL, path, by) if path else {}, labels=("*",))
        assert pod is None or hash(pod) is not None


@given(st.sampled_from([path for path in paths(FULL) if path]), JSON)
def test_no_value_anywhere_is_too_strange(path: tuple[Any, ...], by: Any) -> None:
    pod, _ = distilled_with_left(replaced(FULL, path, by), labels=("*",), annotations=("*",))
    assert pod is None or hash(pod) is not None
    json.dumps(by)


def test_requests_are_read_of_each_container_and_the_limit_counts() -> None:
    spec = {
        "initContainers": [raw_container("prepare", resources={"requests": {"a/x": 2}})],
        "containers": [
            raw_container(resources={"requests": {"a/x": "1", "cpu": 2}, "limits": {"a/x": "3"}}),
            raw_container("side"),
        ],
    }
    assert requested_resources(spec) == {
        "prepare": {"a/x": "2"},
        "main": {"a/x": "3", "cpu": "2"},
        "side": {},
    }
