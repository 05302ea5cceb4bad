"""Jobs, and containers without pods, as their sources report them."""

import hashlib

from pipeline.model import (
    Claim,
    ContainerRuntime,
    Evidence,
    Instant,
    Origin,
    PartialRef,
    PodInfo,
    RawDeviceId,
    RunningContainer,
    container_uid,
    job_container_id,
    job_uid,
)
from tests.support.nodes import START


def container_id_of(name: str) -> str:
    """Return an id of 64 hexadecimal digits that belongs to a name."""
    return hashlib.sha256(name.encode()).hexdigest()


def podless_container(
    name: str,
    *devices: str,
    runtime: ContainerRuntime = "docker",
    started: Instant | None = START,
    **facts: str,
) -> RunningContainer:
    """Return a container without a pod.

    Args:
        name: its name; its id belongs to this name.
        devices: uuids of the devices that it was started with.
        runtime: what started it.
        started: when it started.
        facts: image, compose_project, compose_service.
    """
    container_id = container_id_of(name)
    uid = container_uid(runtime, container_id)
    subject = PartialRef(pod=name, uid=uid, container_id=container_id)
    project = facts.get("compose_project", "")
    info = PodInfo(
        uid,
        "",
        name,
        "Running",
        owner_kind="ComposeProject" if project else "",
        owner_name=project,
        labels=tuple(sorted(facts.items())),
    )
    return RunningContainer(
        subject, 77, "", started, _claims(subject, devices, None, Evidence.DEVICE_REQUEST), info
    )


def job(
    number: str,
    *devices: str,
    share: float | None = 1.0,
    cluster: str = "hpc",
    started: Instant = START,
    user: str = "alice",
    **facts: str,
) -> RunningContainer:
    """Return a job of Slurm.

    Args:
        number: its id.
        devices: uuids of the devices that Slurm allocated to it.
        share: the part of each of these devices.
        cluster: name of the cluster.
        started: when it started.
        user: the user's name.
        facts: account, job_name, partition.
    """
    uid = job_uid(cluster, number, started.wall_ns // 1_000_000_000)
    subject = PartialRef(cluster, number, uid=uid, container_id=job_container_id(number))
    labels = tuple(sorted({**facts, "user": user}.items()))
    info = PodInfo(uid, cluster, number, "Running", "User", user, labels=labels)
    return RunningContainer(
        subject, None, "", started, _claims(subject, devices, share, Evidence.JOB_ALLOCATION), info
    )


def _claims(
    subject: PartialRef, devices: tuple[str, ...], share: float | None, evidence: Evidence
) -> tuple[Claim, ...]:
    ids = tuple(RawDeviceId("uuid", uuid) for uuid in devices)
    return (Claim(subject, ids, share, None, Origin(evidence)),) if ids else ()
