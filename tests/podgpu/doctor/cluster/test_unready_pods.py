"""Why pods of podgpu's aren't ready, or aren't made, on objects as an API server has them."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.component.findings import Finding
from podgpu.doctor.cluster import daemonset_checks
from podgpu.doctor.cluster.objects import Cluster
from tests.podgpu.doctor.cluster.objects import Raw, cluster, daemonset, pod, raw
from tests.podgpu.doctor.cluster.test_object_fetcher import DAEMONSETS, looked, server
from tests.podgpu.doctor.support import is_bad, of

RUNS: Raw = {"state": {"running": {}}, "ready": False}
EVENTS = "/api/v1/namespaces/mon/events"


def ended(reason: str, code: int) -> Raw:
    return {"terminated": {"reason": reason, "exitCode": code}}


CONTAINERS: list[tuple[str, Raw, str, str]] = [
    (
        "killed for its memory, and runs again",
        {**RUNS, "restartCount": 41, "lastState": ended("OOMKilled", 137)},
        "runs and is not ready (ended: OOMKilled, status 137, 41 restarts)",
        "resources.limits.memory",
    ),
    (
        "waits after it was killed",
        {
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m"}},
            "restartCount": 3,
            "lastState": ended("OOMKilled", 137),
        },
        "CrashLoopBackOff back-off 5m (ended: OOMKilled, status 137, 3 restarts)",
        "resources.limits.memory",
    ),
    ("has ended", {"state": ended("Error", 2), "ready": False}, "ended: Error, status 2", "logs"),
    ("isn't ready", RUNS, "podgpu-gpu-1 on gpu-1 runs and is not ready", "logs --previous"),
    (
        "has no image",
        {"state": {"waiting": {"reason": "ImagePullBackOff"}}},
        "on gpu-1 ImagePullBackOff",
        "imagePullSecrets",
    ),
]


def reported_of(*pods: Raw, **more: Any) -> Finding:
    ours = more.pop("ours", None) or daemonset(ready=0)
    seen = cluster(daemonsets=[ours], pods=[*pods], **more)
    return of(daemonset_checks.check_daemonsets(seen), "cluster.daemonset")


def with_status(**status: Any) -> Raw:
    return {**pod(daemonset(), "gpu-1"), "status": {"phase": "Running", **status}}


@pytest.mark.parametrize("row", CONTAINERS, ids=lambda row: row[0])
@pytest.mark.parametrize("kind", ["containerStatuses", "initContainerStatuses"])
def test_a_container_that_is_not_ready_says_why(row: tuple[str, Raw, str, str], kind: str) -> None:
    _, container, saw, repair = row
    given_out = reported_of(with_status(**{kind: [{"name": "prepare", **container}]}))
    if kind == "initContainerStatuses":
        assert "podgpu-gpu-1 on gpu-1 init container prepare " in given_out.observed
        saw = saw.removeprefix("podgpu-gpu-1 on gpu-1 ").removeprefix("on gpu-1 ")
    is_bad(given_out, "warning", saw, repair)


def test_an_init_container_that_is_done_is_no_reason() -> None:
    done = {"name": "prepare", "ready": True, "state": ended("Completed", 0)}
    given_out = reported_of(with_status(initContainerStatuses=[done], containerStatuses=[RUNS]))
    assert "prepare" not in given_out.observed


PODS = [
    ({"phase": "Failed", "reason": "Evicted"}, "podgpu-gpu-1 on gpu-1 is Failed Evicted"),
    (
        {
            "phase": "Pending",
            "conditions": [
                {"type": "PodScheduled", "status": "False", "message": "0/1 nodes: cpu"}
            ],
        },
        "is Pending 0/1 nodes: cpu",
    ),
]


@pytest.mark.parametrize(("status", "saw"), PODS)
def test_a_pod_without_containers_says_why(status: Raw, saw: str) -> None:
    is_bad(reported_of(with_status(**status)), "warning", saw, "describe pod")


def event(message: str, at: str, name: str = "podgpu", **more: Any) -> Raw:
    involved = {"kind": "DaemonSet", "name": name, "namespace": "mon"}
    return raw(
        "Event",
        f"podgpu.{at}",
        "mon",
        **{"involvedObject": involved, "reason": "FailedCreate", "message": message} | more,
    )


REFUSALS = [
    ('pods "podgpu-x" is forbidden: violates PodSecurity "restricted:latest"', "enforce: priv"),
    ('pods "podgpu-x" is forbidden: exceeded quota: all, requested: pods=1', "ResourceQuota"),
    ("unable to validate against any security context constraint", "SecurityContextConstraints"),
    ("something else", "describe daemonset"),
]


def made(count: int | None, *, of: int) -> Raw:
    """A DaemonSet none of whose pods is ready, by its controller's count of those that are made."""
    ours = daemonset(desired=of, ready=0)
    if count is not None:
        ours["status"]["currentNumberScheduled"] = count
    return ours


@pytest.mark.parametrize(("message", "repair"), REFUSALS)
def test_pods_that_cannot_be_made_say_why_by_the_newest_event(message: str, repair: str) -> None:
    events = [
        event("an old one", "2026-01-01T00:00:00Z", lastTimestamp="2026-01-01T00:00:00Z"),
        event(message, "b", lastTimestamp=None, eventTime="2026-01-03T00:00:00.000000Z"),
        event("another's", "c", "other", lastTimestamp="2026-01-09T00:00:00Z"),
        event("of another kind", "d", reason="Other", lastTimestamp="2026-01-09T00:00:00Z"),
    ]
    given_out = reported_of(ours=made(0, of=8), events=events)
    is_bad(given_out, "warning", f"0 of 8 pods are ready: 8 are not created: {message}", repair)


@pytest.mark.parametrize("events", [None, []])
def test_without_a_word_of_the_server_they_are_counted(events: list[Raw] | None) -> None:
    ours = made(1, of=2)
    given_out = reported_of(pod(ours, "gpu-1"), ours=ours, events=events)
    is_bad(given_out, "warning", "0 of 2 pods are ready: 1 are not created", "describe daemonset")


MADE = [(3, ""), (4, ""), (1, ": 2 are not created"), (None, "")]


@pytest.mark.parametrize("listed", [None, 0, 1, 3])
@pytest.mark.parametrize(("count", "missing"), MADE)
def test_pods_are_missing_by_the_controller_s_count_and_not_by_a_list(
    count: int | None, missing: str, listed: int | None
) -> None:
    """Of a list a part alone may have come, or nothing; an unknown count is no count of 0."""
    ours = made(count, of=3)
    pods = None if listed is None else [pod(ours, f"gpu-{at}") for at in range(listed)]
    (given_out, *_) = daemonset_checks.check_daemonsets(Cluster(daemonsets=[ours], pods=pods))
    assert given_out.observed == f"0 of 3 pods are ready{missing}"


@pytest.mark.parametrize("short", [True, False])
async def test_events_are_asked_for_where_pods_are_missing(tmp_path: Path, *, short: bool) -> None:
    ours = made(0 if short else 1, of=1)
    message = "exceeded quota: all"
    serving = server(**{DAEMONSETS: [ours], EVENTS: [event(message, "a")]})
    serving.paths["/api/v1/namespaces/mon/pods"].delete("mon", "podgpu-gpu-1")
    given_out = of(await looked(tmp_path, serving), "cluster.daemonset")
    asked = [query.get("fieldSelector") for path, query in serving.requests if path == EVENTS]
    assert asked == (["involvedObject.kind=DaemonSet,reason=FailedCreate"] if short else [])
    assert (message in given_out.observed) == short
