"""Converts what Slurm knows of a job to the model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pipeline.base.clock import WallTimes
from pipeline.model import (
    NS,
    Claim,
    Evidence,
    Origin,
    PartialRef,
    PodInfo,
    RawDeviceId,
    RunningContainer,
    job_container_id,
    job_uid,
)
from sources.slurm.job_record import JobRecord

_ORIGIN: Final = Origin(Evidence.JOB_ALLOCATION, "scontrol show job")


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What is the same for all jobs of a node.

    Attributes:
        cluster: name of the cluster.
        node: Slurm's name of the node.
        units: how many shards, and units of MPS, each GPU has.
        numbers: what Slurm's numbers of GPUs are.
    """

    cluster: str
    node: str
    units: Mapping[str, int]
    numbers: Literal["index", "minor"]


def running_job(
    job: str, record: JobRecord, here: NodeFacts, moments: WallTimes
) -> RunningContainer:
    """Return a job.

    Args:
        job: its id.
        record: what Slurm knows of it; `started_s` is known.
        here: about the node.
        moments: converts wall times.
    """
    started_s = record.started_s or 0
    since = moments(started_s * NS)
    uid = job_uid(here.cluster, job, started_s)
    subject = PartialRef(here.cluster, job, "", uid, job_container_id(job))
    facts = {
        "account": record.account,
        "job_name": record.name,
        "partition": record.partition,
        "user": record.user,
    }
    claims = []
    for share in record.shares:
        devices = tuple(RawDeviceId(here.numbers, str(gpu)) for gpu in share.gpus)
        part: float | None = 1.0
        if share.kind != "gpu":
            # Slurm takes the shards of a job from one GPU, unless the job has GPUs for itself.
            per_gpu = here.units.get(share.kind, 0)
            part = share.count / per_gpu if len(devices) == 1 and per_gpu >= share.count else None
        claims.append(Claim(subject, devices, part, since, _ORIGIN, f"gres/{share.kind}"))
    if record.unread:
        # No device has such an id, so it is known that the job holds something unknown.
        devices = tuple(RawDeviceId(here.numbers, text) for text in record.unread)
        claims.append(Claim(subject, devices, None, since, _ORIGIN, "gres/gpu"))
    info = PodInfo(
        uid,
        here.cluster,
        job,
        "Running",
        "User" if record.user else "",
        record.user,
        labels=tuple((name, text) for name, text in facts.items() if text),
    )
    return RunningContainer(subject, None, "", since, tuple(claims), info)
