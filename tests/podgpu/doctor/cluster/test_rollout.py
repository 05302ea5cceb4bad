"""`cluster.daemonset` and `cluster.exporters` while podgpu is being updated."""

from typing import Any

import pytest

from pipeline.component.findings import Finding, Verdict
from podgpu.doctor.cluster import cluster_diagnosis, daemonset_checks
from tests.podgpu.doctor.cluster.objects import Raw, cluster, daemonset, pod, set_owner
from tests.podgpu.doctor.support import is_bad, of

SURGE: Raw = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
IN_PLACE: Raw = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
ON_DELETE: Raw = {"type": "OnDelete"}


def check_daemonset(ours: Raw, strategy: Raw, *pods: Raw) -> Finding:
    ours["spec"]["updateStrategy"] = strategy
    return of(
        daemonset_checks.check_daemonsets(cluster(daemonsets=[ours], pods=[*pods])),
        "cluster.daemonset",
    )


STRATEGIES = [
    (
        SURGE,
        0,
        "an update is in progress, 0 of 4 are new: an old pod ends when the new one is ready",
    ),
    (
        SURGE,
        3,
        "an update is in progress, 3 of 4 are new: an old pod ends when the new one is ready",
    ),
    (IN_PLACE, 1, "an update is in progress, 1 of 4 are new"),
    ({}, 1, "an update is in progress, 1 of 4 are new"),
    (ON_DELETE, 2, "2 of 4 are new, the others stay until they are deleted manually"),
]


@pytest.mark.parametrize(("strategy", "updated", "observed"), STRATEGIES)
def test_an_update_in_progress_is_ok_and_reported(
    strategy: Raw, updated: int, observed: str
) -> None:
    finding = check_daemonset(daemonset(desired=4, updated=updated), strategy)
    assert (finding.verdict, finding.observed) == (Verdict.OK, f"4 of 4 pods are ready; {observed}")


def test_a_finished_update_is_not_reported() -> None:
    finding = check_daemonset(daemonset(desired=4, updated=4), SURGE)
    assert (finding.verdict, finding.observed) == (Verdict.OK, "4 of 4 pods are ready")


@pytest.mark.parametrize(("seen", "is_reported"), [(1, True), (2, False), (None, False)])
def test_a_change_that_the_controller_has_not_processed_is_reported(
    seen: int | None, is_reported: bool
) -> None:
    ours = daemonset()
    ours["metadata"]["generation"] = 2
    if seen is not None:
        ours["status"]["observedGeneration"] = seen
    finding = check_daemonset(ours, SURGE)
    assert finding.verdict is Verdict.OK
    assert ("has not processed the change yet" in finding.observed) == is_reported


def test_pods_that_are_not_ready_during_an_update_are_reported_with_it() -> None:
    ours = daemonset(desired=2, ready=1, updated=1)
    finding = check_daemonset(ours, IN_PLACE, pod(ours, "a"), pod(ours, "b", phase="Pending"))
    observed = (
        "1 of 2 pods are ready; an update is in progress, 1 of 2 are new: podgpu-b on b is Pending"
    )
    is_bad(finding, "warning", observed, "describe pod")


NEW_PODS: list[tuple[str, Raw, Verdict]] = [
    ("is starting", {"state": {"waiting": {"reason": "ContainerCreating"}}}, Verdict.OK),
    ("isn't ready yet", {"state": {"running": {}}, "ready": False}, Verdict.OK),
    ("is ready, and was restarted once", {"ready": True, "restartCount": 1}, Verdict.OK),
    ("crashes", {"state": {"waiting": {"reason": "CrashLoopBackOff"}}}, Verdict.WARNING),
    ("has no image", {"state": {"waiting": {"reason": "ErrImagePull"}}}, Verdict.WARNING),
    (
        "restarts repeatedly",
        {"state": {"running": {}}, "ready": False, "restartCount": 3},
        Verdict.WARNING,
    ),
]


@pytest.mark.parametrize("kind", ["containerStatuses", "initContainerStatuses"])
@pytest.mark.parametrize("row", NEW_PODS, ids=lambda row: row[0])
def test_an_update_is_stuck_if_the_new_pod_does_not_start_next_to_the_old_one(
    row: tuple[str, Raw, Verdict], kind: str
) -> None:
    _, container, verdict = row
    ours = daemonset(updated=0)
    new = pod(ours, "gpu-1")
    new["status"] = {"phase": "Running", kind: [{"name": "x", **container}]}
    finding = check_daemonset(ours, SURGE, pod(ours, "gpu-1"), new)
    assert finding.verdict is verdict, finding
    assert "1 of 1 pods are ready; an update is in progress" in finding.observed
    well = check_daemonset(daemonset(updated=1), SURGE, pod(ours, "gpu-1"), new)
    assert well.verdict is Verdict.OK, "without an update, all ready pods are ready"


def check_exporters(*made: Any, pods: list[Raw]) -> Finding:
    found = cluster_diagnosis.check_exporters(cluster(daemonsets=[*made], pods=pods))
    return of(found, "cluster.exporters")


def test_two_pods_of_one_daemonset_are_one_exporter() -> None:
    ours = daemonset()
    pods = [pod(ours, "gpu-1"), pod(ours, "gpu-1")]
    assert check_exporters(ours, pods=pods).verdict is Verdict.OK
    set_owner(ours, "u1", *pods)
    assert check_exporters(ours, pods=pods).verdict is Verdict.OK


def test_a_pod_belongs_to_its_owner_though_another_daemonset_selects_it_too() -> None:
    ours, wide = daemonset(), daemonset("podgpu-wide")
    wide["spec"]["selector"] = ours["spec"]["selector"]
    mine = pod(ours, "gpu-1")
    set_owner(ours, "u1", mine)
    set_owner(wide, "u2")
    assert check_exporters(ours, wide, pods=[mine]).verdict is Verdict.OK
    other = pod(ours, "gpu-1")
    set_owner(wide, "u2", other)
    is_bad(
        check_exporters(ours, wide, pods=[mine, other]),
        "warning",
        "podgpu-wide",
        "remove one of them",
    )
