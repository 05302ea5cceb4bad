"""Pods as they really ran, and what each source reports about one."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pipeline.model import (
    Evidence,
    PartialRef,
    Pod,
    RunningContainer,
)
from tests.pipeline.join.cluster import container, make_claim, pod


class PodLifetime(NamedTuple):
    """A pod as it really ran.

    Attributes:
        device: UUID of the GPU that it holds.
        busy: part of the time during which it keeps the GPU busy.
    """

    name: str
    uid: str
    device: str
    start: float
    end: float
    busy: float

    @property
    def container_id(self) -> str:
        return f"c-{self.uid}"

    def lives(self, when: float) -> bool:
        return self.start <= when < self.end

    def overlap(self, begin: float, end: float) -> float:
        return max(min(end, self.end) - max(begin, self.start), 0.0)


@dataclass
class Polls:
    """Times at which two sources reported a pod: one its name, the other its UID."""

    names: list[float] = field(default_factory=list)
    uids: list[float] = field(default_factory=list)

    @property
    def match(self) -> bool:
        """Whether name and UID are known to belong together at one time.

        This is so if the UID was reported before and after the name. A UID is never used again,
        but a name that was reported twice may have belonged to another pod in between.
        """
        return any(self.uids[0] <= when <= self.uids[-1] for when in self.names if self.uids)


def pod_of(life: PodLifetime, when: float) -> Pod:
    started = float(int(life.start // 1)) if when >= life.start else None
    made = pod(life.name, container(container_id=life.container_id), uid=life.uid, started=started)
    return replace(made, containers=made.containers if started is not None else (container(),))


def running_of(life: PodLifetime) -> RunningContainer:
    subject = PartialRef("ml", life.name, "main", life.uid, life.container_id)
    claim = make_claim(Evidence.RUNTIME_NODES, subject, [life.device], "visible")
    return RunningContainer(subject, claims=(claim,))
