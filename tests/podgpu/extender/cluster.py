"""Build nodes, pods and scheduler requests for the tests of the extender."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pipeline.model.availability import availability
from pipeline.model.bitmask import mask_of
from pipeline.model.topology_tree import Topology
from pipeline.topology.node_annotation import KEY, Published, annotation
from podgpu.extender.node_selection.node_state import NodeKnowledge

NOW = 1_800_000_000.0
REFRESH = 60.0
GPU = "nvidia.com/gpu"

Raw = dict[str, Any]


def free_of(topology: Topology, *held: int) -> int:
    """Return the bitmask of all GPUs except the held ones."""
    return topology.mask & ~mask_of(held)


def knowledge(
    topology: Topology,
    free: int | None = -1,
    *,
    part: int = 0,
    age: float = 0,
    devices: int | None = None,
) -> NodeKnowledge:
    """Return what the extender knows about a node. By default all GPUs are free."""
    free = topology.mask if free == -1 else free
    return NodeKnowledge(Published(topology, free, part, NOW - age, REFRESH), devices=devices)


def annotation_of(topology: Topology, *, at: float = NOW, free: bool = True) -> str:
    """Return a node's annotation: all GPUs are free, or it is unknown which are free."""
    available = availability(topology, {}) if free else None
    return annotation(topology, available, at=at, refresh=REFRESH)


def annotation_with(topology: Topology, free: int, *, at: float = NOW, part: int = 0) -> str:
    """Return a node's annotation with these bitmasks of free and partly held GPUs."""
    made = json.loads(annotation_of(topology, at=at))
    return json.dumps({**made, "free": f"{free:x}", "part": f"{part:x}"})


def node(name: str, text: str | None = None, *, gpus: str | int | None = None) -> Raw:
    """Return a Node object as the API server returns it."""
    annotations = {} if text is None else {KEY: text}
    status = {} if gpus is None else {"allocatable": {"cpu": "96", GPU: gpus}}
    return {"metadata": {"name": name, "annotations": annotations}, "status": status}


def container(
    gpus: str | int | None = None, *, restart: str | None = None, limits_only: bool = False
) -> Raw:
    quantities = {} if gpus is None else {GPU: gpus}
    resources = {"limits": quantities} | ({} if limits_only else {"requests": quantities})
    return {"name": "c", "resources": resources} | (
        {} if restart is None else {"restartPolicy": restart}
    )


def pod(
    *containers: Raw,
    init: Iterable[Raw] = (),
    gpus: str | int | None = None,
    require: str | None = None,
) -> Raw:
    """Return a pod as the scheduler sends it."""
    listed = [*containers, *([] if gpus is None else [container(gpus)])]
    annotations = {} if require is None else {"podgpu.io/require": require}
    return {
        "metadata": {"name": "p", "namespace": "ml", "annotations": annotations},
        "spec": {"containers": listed, "initContainers": list(init)},
    }


def question(
    pod_: Mapping[str, Any],
    *,
    names: Sequence[str] | None = None,
    nodes: Sequence[Raw] | None = None,
) -> bytes:
    """Return an ExtenderArgs as Go encodes it: absent members are null."""
    listed = None if nodes is None else {"metadata": {}, "items": list(nodes)}
    return json.dumps({"Pod": pod_, "Nodes": listed, "NodeNames": names}).encode()
