"""Keeps the topology annotations and GPU counts of the cluster's Nodes."""

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

from pipeline.base.errors import ApiError
from pipeline.base.safe_text import line
from pipeline.host.daemon_threads import DaemonExecutor
from pipeline.kube.json_access import as_dict, as_text
from pipeline.model.topology_tree import Topology
from pipeline.topology.node_annotation import Published, published
from podgpu.extender.node_selection.node_state import NOT_YET, NOTHING, STATES, NodeKnowledge, State
from podgpu.extender.node_selection.pod_demand import whole

PATH: Final = "/api/v1/nodes"

LONGEST: Final = 64 << 10
"""Maximum number of characters of an annotation. With 64 GPUs it has about 24,000; all annotations
of an object together have at most 262,144 bytes."""

_LINKS: Final = 64
"""Maximum number of NVLinks between two GPUs, three times that of today's GPUs. Without a limit, a
node could get the best score by a wrong number."""

_TOO_LONG: Final = " " * (LONGEST + 1)
"""Placeholder for an annotation that is too long; it is too long itself."""


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """The used parts of a Node, before the annotation is parsed.

    Attributes:
        name: name of the node.
        annotation: value of the topology annotation; None if there is none.
        devices: number of allocatable devices; see `NodeKnowledge`.
    """

    name: str
    annotation: str | None
    devices: int | None


def node_record(key: str, resources: Sequence[str], raw: Mapping[str, Any]) -> NodeRecord | None:
    """Return the used parts of a Node; None if the object has no name.

    Args:
        key: key of the topology annotation.
        resources: names of the resources that are GPUs.
        raw: the Node, as the API server sent it.
    """
    metadata = as_dict(raw.get("metadata"))
    name = as_text(metadata.get("name"))
    if not name:
        return None
    annotation = as_dict(metadata.get("annotations")).get(key)
    if not isinstance(annotation, str):
        annotation = None
    elif len(annotation) > LONGEST:
        annotation = _TOO_LONG
    # Not the capacity, which includes unhealthy devices.
    allocatable = as_dict(as_dict(raw.get("status")).get("allocatable"))
    listed = [allocatable[resource] for resource in resources if resource in allocatable]
    try:
        devices = sum(map(whole, listed)) if listed else None
    except (TypeError, ValueError):
        devices = None
    return NodeRecord(name, annotation, devices)


class Nodes:
    """All known Nodes of the cluster. Implements `pipeline.kube.reflector.Handler`.

    Attributes:
        complete: whether all Nodes have been listed once. They stay known while the API server is
            down.
        followed: whether changes of the Nodes are being received.
    """

    def __init__(self, log: logging.Logger) -> None:
        self.complete = False
        self.followed = False
        self._log = log
        # A cluster has few kinds of machines, and a topology has about ten kilobytes. Nodes with
        # equal links share an object: their best choice of GPUs is the same, whatever the UUIDs.
        self._topologies: WeakValueDictionary[Shape, Topology] = WeakValueDictionary()
        self._known: dict[str, NodeKnowledge] = {}
        # Nodes change often, but their annotations seldom change.
        self._digests: dict[str, bytes | None] = {}
        self._watch_fault: tuple[int, str] | None = None
        self._logged_unreadable = False
        # Parsing the annotation of a node with 64 GPUs takes about ten milliseconds.
        self._thread = DaemonExecutor("podgpu-extender-nodes")

    def known_of(self, name: str) -> NodeKnowledge:
        """Return what is known of a node. Safe to call from any thread."""
        return self._known.get(name, NOTHING if self.complete else NOT_YET)

    def count(self, now: float) -> Mapping[State, int]:
        """Return the number of Nodes in each state at a Unix time."""
        counted = Counter(known.state(now) for known in self._known.values())
        return {state: counted[state] for state in STATES}

    async def replaced(self, objects: Sequence[NodeRecord]) -> None:
        """Replace all Nodes, and forget the others."""
        gone = self._known.keys() - {found.name for found in objects}
        for found in objects:
            await asyncio.sleep(0)
            await self.upserted(found)
        for name in gone:
            self._forget(name)
        self.complete = True
        await self.confirmed()

    async def upserted(self, obj: NodeRecord) -> None:
        """Add or update a Node."""
        digest = None
        if obj.annotation is not None:
            encoded = obj.annotation.encode("utf-8", "replace")
            digest = hashlib.blake2b(encoded, digest_size=16).digest()
        before = self._known.get(obj.name)
        if before is not None and self._digests[obj.name] == digest:
            if before.devices != obj.devices:
                self._known[obj.name] = replace(before, devices=obj.devices)
            return
        known = NodeKnowledge(devices=obj.devices)
        if obj.annotation is not None:
            known = await self._read(obj.name, obj.annotation, known)
        self._digests[obj.name] = digest
        self._known[obj.name] = known

    async def deleted(self, obj: NodeRecord) -> None:
        """Remove a Node."""
        self._forget(obj.name)

    async def confirmed(self) -> None:
        """Note that the API server has responded; log it if the watch had failed."""
        self.followed = True
        if self._watch_fault is not None:
            self._watch_fault = None
            self._log.info("watching nodes again")

    async def watch_failed(self, error: ApiError) -> None:
        """Note that Nodes cannot be watched; log the error unless the last one was of its kind."""
        self.followed = False
        if error.dedup_key == self._watch_fault:
            return
        self._watch_fault = error.dedup_key
        effect = "the last known nodes stay in use" if self.complete else "no node is known yet"
        self._log.warning("%s; %s", error, effect)

    def close(self) -> None:
        """End the thread that parses annotations."""
        self._thread.shutdown()

    def _forget(self, name: str) -> None:
        self._known.pop(name, None)
        self._digests.pop(name, None)

    async def _read(self, name: str, annotation: str, known: NodeKnowledge) -> NodeKnowledge:
        try:
            if len(annotation) > LONGEST:
                raise ValueError(f"longer than {LONGEST} characters")  # noqa: TRY301 - one way out
            read = await asyncio.wrap_future(self._thread.submit(_published, annotation))
        except ValueError as error:
            if not self._logged_unreadable:
                self._logged_unreadable = True
                text = (
                    "node %s: invalid topology annotation: %s; further invalid annotations are "
                    "only counted"
                )
                self._log.warning(text, line(name), line(str(error)))
            return replace(known, readable=False)
        topology = self._topologies.setdefault(shape(read.topology), read.topology)
        return replace(known, published=replace(read, topology=topology))


def _published(annotation: str) -> Published:
    made = published(annotation)
    if not all(0 <= (link.nvlinks or 0) <= _LINKS for link in made.topology.links.values()):
        raise ValueError(f"the number of NVLinks between two GPUs is not from 0 to {_LINKS}")
    return made


Shape: TypeAlias = tuple[int, bytes, tuple[int | None, ...], tuple[int, ...]]


def shape(topology: Topology) -> Shape:
    """Return a key that is equal for topologies with equal links, levels and NVLink groups."""
    # The groups of a level follow from the links: from their link's level on, two GPUs share one.
    links = [topology.links[pair] for pair in sorted(topology.links)]
    return (
        len(topology.cards),
        bytes(link.level for link in links),
        tuple(link.nvlinks for link in links),
        tuple(domain.mask for domain in topology.domains),
    )
