"""Containers, as the container runtime reports them."""

from dataclasses import dataclass

from pipeline.model.claims import Claim
from pipeline.model.container_ref import PartialRef
from pipeline.model.instant import Instant


@dataclass(frozen=True, slots=True)
class RunningContainer:
    """A container that was created and has not ended.

    Attributes:
        subject: with every part; for a static pod with the uid that the kubelet gave it.
        pid: its first process, in the host's pid namespace; None before there is one.
        cgroup: path of its cgroup as it was requested from the runtime; empty if unknown.
        started: when its process started; None before that.
        claims: the devices that it was given, and what the annotations of its pod say.
    """

    subject: PartialRef
    pid: int | None = None
    cgroup: str = ""
    started: Instant | None = None
    claims: tuple[Claim, ...] = ()
