"""Why pods of podgpu are not ready, or are not created."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.component.findings import Finding
from podgpu.doctor.cluster import daemonset_checks
from podgpu.doctor.cluster.objects import Cluster
from tests.podgpu.doctor.cluster.objects import Raw, cluster, daemonset, pod, raw
from tests.podgpu.doctor.cluster.test_object_fetcher import DAEMONSETS, diagnosed, server
from tests.podgpu.doctor.support import is_bad, of

NOT_READY: Raw = {"state": {"running": {}}, "ready": False}
EVENTS = "/api/v1/namespaces/mon/events"


def ended(reason: str, code: int) -> Raw:
    return {"terminated": {"reason": reason, "exitCode": code}}


CONTAINERS: list[tuple[str, Raw, str, str]] = [
    (
        "was killed for its memory and restarts",
        {**NOT_READY, "restartCount": 41, "lastState": ended("OOMKilled", 137)},
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
    ("isn't ready", NOT_READY, "podgpu-gpu-1 on gpu-1 runs and is not ready", "logs --previous"),
    (
        "has no image",
        {"state": {"waiting": {"reason": "ImagePullBackOff"}}},
        "on gpu-1 ImagePullBackOff",
        "imagePullSecrets",
    ),
]


def check_daemonset(*pods: Raw, **more: Any) -> Finding:
    ours = more.pop("ours", None) or daemonset(ready=0)
    seen = cluster(daemonsets=[ours], pods=[*pods], **more)
    return of(daemonset_checks.check_daemonsets(seen), "cluster.daemonset")


def with_status(**status: Any) -> Raw:
    return {**pod(daemonset(), "gpu-1"), "status": {"phase": "Running", **status}}


@pytest.mark.parametrize("row", CONTAINERS, ids=lambda row: row[0])
@pytest.mark.parametrize("kind", ["containerStatuses", "initContainerStatuses"])
def test_a_container_that_is_not_ready_is_reported_with_the_reason(
    row: tuple[str, Raw, str, str], kind: str
) -> None:
    _, container, observed, fix = row
    finding = check_daemonset(with_status(**{kind: [{"name": "prepare", **container}]}))
    if kind == "initContainerStatuses":
        assert "podgpu-gpu-1 on gpu-1 init container prepare " in finding.observed
        observed = observed.removeprefix("podgpu-gpu-1 on gpu-1 ").removeprefix("on gpu-1 ")
    is_bad(finding, "warning", observed, fix)


def test_a_completed_init_container_is_not_named() -> None:
    done = {"name": "prepare", "ready": True, "state": ended("Completed", 0)}
    finding = check_daemonset(
        with_status(initContainerStatuses=[done], containerStatuses=[NOT_READY])
    )
    assert "prepare" not in finding.observed


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


@pytest.mark.parametrize(("status", "observed"), PODS)
def test_a_pod_without_containers_is_reported_with_the_reason(status: Raw, observed: str) -> None:
    is_bad(check_daemonset(with_status(**status)), "warning", observed, "describe pod")


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


def daemonset_with(count: int | None, *, of: int) -> Raw:
    """Return a DaemonSet without ready pods; `count` is how many its controller has created."""
    ours = daemonset(desired=of, ready=0)
    if count is not None:
        ours["status"]["currentNumberScheduled"] = count
    return ours


@pytest.mark.parametrize(("message", "fix"), REFUSALS)
def test_pods_that_cannot_be_created_are_explained_by_the_newest_event(
    message: str, fix: str
) -> None:
    events = [
        event("an old one", "2026-01-01T00:00:00Z", lastTimestamp="2026-01-01T00:00:00Z"),
        event(message, "b", lastTimestamp=None, eventTime="2026-01-03T00:00:00.000000Z"),
        event("another's", "c", "other", lastTimestamp="2026-01-09T00:00:00Z"),
        event("of another kind", "d", reason="Other", lastTimestamp="2026-01-09T00:00:00Z"),
    ]
    finding = check_daemonset(ours=daemonset_with(0, of=8), events=events)
    is_bad(finding, "warning", f"0 of 8 pods are ready: 8 are not created: {message}", fix)


@pytest.mark.parametrize("events", [None, []])
def test_without_an_event_missing_pods_are_only_counted(events: list[Raw] | None) -> None:
    ours = daemonset_with(1, of=2)
    finding = check_daemonset(pod(ours, "gpu-1"), ours=ours, events=events)
    is_bad(finding, "warning", "0 of 2 pods are ready: 1 are not created", "describe daemonset")


COUNTS = [(3, ""), (4, ""), (1, ": 2 are not created"), (None, "")]


@pytest.mark.parametrize("listed", [None, 0, 1, 3])
@pytest.mark.parametrize(("count", "missing"), COUNTS)
def test_missing_pods_are_counted_by_the_controller_and_not_by_a_list(
    count: int | None, missing: str, listed: int | None
) -> None:
    """A list may be partial or missing; an unknown count is not 0."""
    ours = daemonset_with(count, of=3)
    pods = None if listed is None else [pod(ours, f"gpu-{at}") for at in range(listed)]
    (finding, *_) = daemonset_checks.check_daemonsets(Cluster(daemonsets=[ours], pods=pods))
    assert finding.observed == f"0 of 3 pods are ready{missing}"


@pytest.mark.parametrize("missing", [True, False])
async def test_events_are_requested_only_if_pods_are_missing(
    tmp_path: Path, *, missing: bool
) -> None:
    ours = daemonset_with(0 if missing else 1, of=1)
    message = "exceeded quota: all"
    serving = server(**{DAEMONSETS: [ours], EVENTS: [event(message, "a")]})
    serving.paths["/api/v1/namespaces/mon/pods"].delete("mon", "podgpu-gpu-1")
    finding = of(await diagnosed(tmp_path, serving), "cluster.daemonset")
    requested = [query.get("fieldSelector") for path, query in serving.requests if path == EVENTS]
    assert requested == (["involvedObject.kind=DaemonSet,reason=FailedCreate"] if missing else [])
    assert (message in finding.observed) == missing
