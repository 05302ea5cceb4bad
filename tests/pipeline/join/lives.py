"""Pods as they really were, and what sources tell of one."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pipeline.model import (
    Evidence,
    PartialRef,
    Pod,
    RunningContainer,
)
from tests.pipeline.join.cluster import container, pod, said


class Life(NamedTuple):
    """A pod as it really was."""

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
    """When two sources that tell parts of a pod have each told of it."""

    names: list[float] = field(default_factory=list)
    uids: list[float] = field(default_factory=list)

    @property
    def meet(self) -> bool:
        """Whether both were told of one moment: the uid was told before the name and after it.

        A uid never comes back; of a name that is listed twice nobody knows what was in between.
        """
        return any(self.uids[0] <= when <= self.uids[-1] for when in self.names if self.uids)


def pod_of(life: Life, when: float) -> Pod:
    started = float(int(life.start // 1)) if when >= life.start else None
    made = pod(life.name, container(container_id=life.container_id), uid=life.uid, started=started)
    return replace(made, containers=made.containers if started is not None else (container(),))


def running_of(life: Life) -> RunningContainer:
    subject = PartialRef("ml", life.name, "main", life.uid, life.container_id)
    claim = said(Evidence.RUNTIME_NODES, subject, [life.device], "visible")
    return RunningContainer(subject, claims=(claim,))
