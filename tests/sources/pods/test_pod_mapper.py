"""How a pod of the API server is mapped."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.model import Instant, Pod, PodContainer, PodInfo
from sources.pods.pod_mapper import requested_resources
from sources.pods.timestamps import Timestamps
from tests.sources.pods.json_mutation import DEEP, JSON, paths, replaced
from tests.sources.pods.pod_objects import (
    BASE,
    at,
    map_pod,
    mapped,
    raw_container,
    raw_pod,
    raw_status,
)

LATER = "2026-11-01T09:30:00Z"


def test_a_pod_is_mapped_with_its_container() -> None:
    assert mapped(raw_pod()) == Pod(
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
def test_a_pod_has_ended_in_a_final_phase(phase: str, ended: bool) -> None:
    pod = mapped(raw_pod(status={"phase": phase}))
    assert (pod.info.phase, pod.ended) == (phase, ended)
    assert [c.ended for c in pod.containers] == [ended]


def test_a_pod_that_is_being_deleted_has_not_ended() -> None:
    pod = mapped(raw_pod(metadata={"deletionTimestamp": LATER}))
    assert not pod.ended
    assert not pod.containers[0].ended


def test_a_pod_that_is_not_admitted_has_no_start_time() -> None:
    pod = mapped(raw_pod(status={"startTime": None, "containerStatuses": None}))
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
def test_the_start_time_of_a_container_is_that_of_its_last_run(
    state: dict[str, Any], last: dict[str, Any], container_id: str, started: str
) -> None:
    container_status = raw_status() | {"state": state, "lastState": last}
    [container] = mapped(raw_pod(status={"containerStatuses": [container_status]})).containers
    assert container.container_id == container_id
    assert container.started == (at(started) if started else None)


@pytest.mark.parametrize(
    ("raw_id", "expected"),
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
def test_the_id_of_a_container_is_read_without_its_runtime(raw_id: object, expected: str) -> None:
    container_status = raw_status() | {"containerID": raw_id, "state": {}}
    [container] = mapped(raw_pod(status={"containerStatuses": [container_status]})).containers
    assert container.container_id == expected


SUCCEEDED = {"terminated": {"exitCode": 0, "startedAt": LATER}}
FAILED = {"terminated": {"exitCode": 1, "startedAt": LATER}}
RULES = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]


@pytest.mark.parametrize(
    ("kind", "policy", "own", "state", "ended"),
    [
        ("app", "Always", {}, SUCCEEDED, False),
        ("app", "Always", {}, FAILED, False),
        ("app", "OnFailure", {}, SUCCEEDED, True),
        ("app", "OnFailure", {}, FAILED, False),
        ("app", "Never", {}, SUCCEEDED, True),
        ("app", "Never", {}, FAILED, True),
        ("app", "Never", {}, {"running": {"startedAt": LATER}}, False),
        ("app", "Never", {}, {"waiting": {}}, False),
        ("app", "Always", {"restartPolicy": "Never"}, FAILED, True),
        ("app", "Never", {"restartPolicy": "Always"}, FAILED, False),
        ("app", "Always", {"restartPolicy": "Never", "restartPolicyRules": RULES}, FAILED, False),
        ("init", "Always", {}, SUCCEEDED, True),
        ("init", "Always", {}, FAILED, False),
        ("init", "Never", {}, FAILED, True),
        ("sidecar", "Never", {"restartPolicy": "Always"}, SUCCEEDED, False),
        ("ephemeral", "Always", {}, FAILED, True),
    ],
)
def test_a_container_has_ended_if_it_will_not_restart(
    kind: str, policy: str, own: dict[str, Any], state: dict[str, Any], ended: bool
) -> None:
    list_key, status_key = {
        "app": ("containers", "containerStatuses"),
        "ephemeral": ("ephemeralContainers", "ephemeralContainerStatuses"),
    }.get(kind, ("initContainers", "initContainerStatuses"))
    raw = raw_pod(
        spec={"restartPolicy": policy, "containers": [], list_key: [raw_container("it", **own)]},
        status={"containerStatuses": [], status_key: [raw_status("it", **state)]},
    )
    [container] = mapped(raw).containers
    assert (container.kind, container.ended) == (kind, ended)
    deleting = {**raw, "metadata": {**raw["metadata"], "deletionTimestamp": LATER}}
    [container] = mapped(deleting).containers
    assert container.ended == ("terminated" in state)


def test_containers_are_in_the_order_of_the_spec() -> None:
    raw = raw_pod(
        spec={
            "initContainers": [raw_container("a"), raw_container("b", restartPolicy="Always")],
            "containers": [raw_container("d"), raw_container("c")],
            "ephemeralContainers": [raw_container("e")],
        },
        status={"containerStatuses": [raw_status("c"), raw_status("d")]},
    )
    found = [(c.name, c.kind, c.container_id) for c in mapped(raw).containers]
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
def test_the_workload_of_a_pod_is_its_controller(
    references: Any, labels: dict[str, str], owner: tuple[str, str]
) -> None:
    info = mapped(raw_pod(labels=labels, metadata={"ownerReferences": references})).info
    assert (info.owner_kind, info.owner_name) == owner


@pytest.mark.parametrize(
    ("annotations", "uid"),
    [
        ({}, ""),
        ({"kubernetes.io/config.mirror": "abc", "kubernetes.io/config.hash": "abc"}, "abc"),
        ({"kubernetes.io/config.mirror": "abc"}, "abc"),
        # Any pod may have this annotation, and would get the devices of the static pod.
        ({"kubernetes.io/config.hash": "abc"}, ""),
        ({"kubernetes.io/config.mirror": 7}, ""),
    ],
)
def test_a_static_pod_has_the_uid_that_the_kubelet_uses(
    annotations: dict[str, Any], uid: str
) -> None:
    assert mapped(raw_pod(annotations=annotations)).static_uid == uid


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
def test_pods_that_request_devices_are_recognised(spec: dict[str, Any], wants: bool) -> None:
    assert mapped(raw_pod(spec=spec)).wants_devices is wants


def test_labels_and_annotations_are_dropped_unless_configured() -> None:
    info = mapped(raw_pod(labels={"app": "x"}, annotations={"note": "y"})).info
    assert (info.labels, info.annotations) == ((), ())


def test_configured_labels_are_sorted() -> None:
    raw = raw_pod(
        labels={"team": "a", "app.kubernetes.io/name": "b", "other": "c", "Team": "d"},
        annotations={"cost": "9", "team": "e"},
    )
    info = mapped(raw, labels=("team", "app.*"), annotations=("cos?",)).info
    assert info.labels == (("app.kubernetes.io/name", "b"), ("team", "a"))
    assert info.annotations == (("cost", "9"),)


@pytest.mark.parametrize(
    ("globs", "patterns", "expected"),
    [
        ((), ("team",), ["my-team", "team"]),
        ((), ("^team$",), ["team"]),
        ((), ("^app[.]", "^team$"), ["app.kubernetes.io/name", "team"]),
        (("other",), ("^team$",), ["other", "team"]),
        ((), ("^nothing$",), []),
    ],
)
def test_labels_are_selected_by_patterns_of_their_names(
    globs: tuple[str, ...], patterns: tuple[str, ...], expected: list[str]
) -> None:
    names = ("team", "my-team", "app.kubernetes.io/name", "other")
    raw = raw_pod(labels=dict.fromkeys(names, "x"), annotations={"team": "y"})
    info = mapped(raw, labels=globs, label_patterns=patterns).info
    assert [name for name, _ in info.labels] == expected
    assert info.annotations == ()


def test_labels_that_are_too_many_or_too_long_are_dropped_and_counted() -> None:
    raw = raw_pod(
        labels={f"l{number:02}": "x" for number in range(30)},
        annotations={"a": "x" * 1025, "b": "x" * 1024, "c": 7},
    )
    pod, omissions = map_pod(raw, labels=("*",), annotations=("*",), max_labels=20)
    assert pod is not None
    assert [name for name, _ in pod.info.labels] == [f"l{number:02}" for number in range(20)]
    assert pod.info.annotations == (("b", "x" * 1024), ("c", ""))
    assert [(each.pod, each.omitted) for each in omissions] == [("ml/train-0", 11)]


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
def test_timestamps_are_parsed(stamp: object, seconds: float | None) -> None:
    found = Timestamps(lambda: BASE).parse(stamp)
    if seconds is None:
        assert found is None
    else:
        wall_ns = round(seconds * 1e9)
        assert found == Instant(wall_ns - BASE.wall_ns + BASE.mono_ns, wall_ns)


@pytest.mark.parametrize("missing", ["uid", "name", "namespace"])
def test_an_object_without_an_identity_is_no_pod(missing: str) -> None:
    raw = raw_pod()
    del raw["metadata"][missing]
    assert map_pod(raw) == (None, [])


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
            raw_status() | {"state": SUCCEEDED, "lastState": FAILED},
        ]
    },
)


@pytest.mark.parametrize("new", [DEEP, [], {}, [[]], {"a": []}], ids=lambda new: type(new).__name__)
def test_a_value_of_any_type_in_any_place_is_read(new: Any) -> None:
    for path in paths(FULL):
        pod, _ = map_pod(replaced(FULL, path, new) if path else {}, labels=("*",))
        assert pod is None or hash(pod) is not None


@given(st.sampled_from([path for path in paths(FULL) if path]), JSON)
def test_any_json_in_any_place_is_read(path: tuple[Any, ...], new: Any) -> None:
    pod, _ = map_pod(replaced(FULL, path, new), labels=("*",), annotations=("*",))
    assert pod is None or hash(pod) is not None
    json.dumps(new)


def test_requests_are_read_for_each_container_and_limits_take_precedence() -> None:
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
