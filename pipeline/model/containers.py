"""Containers, as the container runtime tells of them."""

from dataclasses import dataclass

from pipeline.model.claims import Claim
from pipeline.model.container_ref import PartialRef
from pipeline.model.instant import Instant


@dataclass(frozen=True, slots=True)
class RunningContainer:
    """A container that was made and has not ended.

    Attributes:
        subject: with every part; a static pod goes by the uid that the kubelet gave it.
        pid: of its first process, in the host's pid namespace; None before there is one.
        cgroup: path of its cgroup as the runtime was asked for it; empty when unknown.
        started: when its process started; None before it has.
        claims: which devices it was given, and what its pod's annotations say.
    """

    subject: PartialRef
    pid: int | None = None
    cgroup: str = ""
    started: Instant | None = None
    claims: tuple[Claim, ...] = ()
