"""What the cluster's Nodes say of their GPUs, kept by name."""

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pipeline.base.errors import ApiError
from pipeline.base.safe_text import line
from pipeline.host.daemon_threads import DaemonExecutor
from pipeline.kube.json_access import as_dict, as_text
from pipeline.topology.node_annotation import Published, published
from podgpu.extender.node_selection.node_state import NOT_YET, NOTHING, STATES, NodeKnowledge, State
from podgpu.extender.node_selection.quantity import whole
from podgpu.extender.topology_pool import Shapes

PATH: Final = "/api/v1/nodes"

LONGEST: Final = 64 << 10
"""Characters of an annotation that are read: that of 64 GPUs has some 24,000, and all annotations
of an object have no more than 262,144 bytes."""

_LINKS: Final = 64
"""NVLinks between two GPUs at most, three times what today's have. With any number it likes a node
would be the best of all."""

_TOO_LONG: Final = " " * (LONGEST + 1)
"""What is kept of a longer one."""


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """What is kept of a Node until it is read.

    Attributes:
        name: the node's.
        annotation: its annotation; None if there is none.
        devices: see `NodeKnowledge`.
    """

    name: str
    annotation: str | None
    devices: int | None


class NodeMapper:
    """Takes what is needed from a Node as the API server sends it.

    Args:
        key: of the annotation.
        resources: whose devices are counted.
    """

    def __init__(self, key: str, resources: Iterable[str]) -> None:
        self._key = key
        self._resources = tuple(resources)

    def __call__(self, raw: Mapping[str, Any]) -> NodeRecord | None:
        """Return it; None for what has no name."""
        metadata = as_dict(raw.get("metadata"))
        name = as_text(metadata.get("name"))
        if not name:
            return None
        said = as_dict(metadata.get("annotations")).get(self._key)
        if not isinstance(said, str):
            said = None
        elif len(said) > LONGEST:
            said = _TOO_LONG
        return NodeRecord(name, said, self._devices(raw))

    def _devices(self, raw: Mapping[str, Any]) -> int | None:
        # Of the capacity are also those that are not healthy, which nobody is given.
        given = as_dict(as_dict(raw.get("status")).get("allocatable"))
        listed = [given[resource] for resource in self._resources if resource in given]
        try:
            return sum(whole(quantity) for quantity in listed) if listed else None
        except (TypeError, ValueError):
            return None


class Nodes:
    """Implements `pipeline.kube.reflector.Handler` for Nodes.

    Attributes:
        complete: all Nodes have been heard of once; what is known then stands while the API server
            is away.
        followed: their changes are heard of now.
    """

    def __init__(self, log: logging.Logger) -> None:
        self.complete = False
        self.followed = False
        self._log = log
        self._shapes = Shapes()
        self._known: dict[str, NodeKnowledge] = {}
        # Nodes change often, and their annotations seldom with them.
        self._digests: dict[str, bytes | None] = {}
        self._lost_by: tuple[int, str] | None = None
        self._complained = False
        # To read one of 64 GPUs takes some ten milliseconds.
        self._thread = DaemonExecutor("podgpu-extender-nodes")

    def known_of(self, name: str) -> NodeKnowledge:
        """Return what is known of a node. Safe to call from any thread."""
        return self._known.get(name, NOTHING if self.complete else NOT_YET)

    def count(self, now: float) -> Mapping[State, int]:
        """Count the nodes by how good what is known of them is, at a Unix time."""
        counted = Counter(known.state(now) for known in self._known.values())
        return {state: counted[state] for state in STATES}

    async def replaced(self, objects: Sequence[NodeRecord]) -> None:
        """Take all Nodes."""
        gone = self._known.keys() - {found.name for found in objects}
        for found in objects:
            await asyncio.sleep(0)
            await self._take(found)
        for name in gone:
            self._forget(name)
        self.complete = True
        await self.confirmed()

    async def upserted(self, obj: NodeRecord) -> None:
        """Take a Node."""
        await self._take(obj)

    async def deleted(self, obj: NodeRecord) -> None:
        """Forget a Node."""
        self._forget(obj.name)

    async def confirmed(self) -> None:
        """Note that the server was heard."""
        self.followed = True
        if self._lost_by is not None:
            self._lost_by = None
            self._log.info("nodes are followed again")

    async def watch_failed(self, error: ApiError) -> None:
        """Note why Nodes can't be followed; told once for each kind of fault."""
        self.followed = False
        if error.dedup_key == self._lost_by:
            return
        self._lost_by = error.dedup_key
        stands = "what was heard before stands" if self.complete else "no node has been heard of"
        self._log.warning("%s; %s", error, stands)

    def close(self) -> None:
        """Let the thread end."""
        self._thread.shutdown()

    async def _take(self, found: NodeRecord) -> None:
        digest = None
        if found.annotation is not None:
            said = found.annotation.encode("utf-8", "replace")
            digest = hashlib.blake2b(said, digest_size=16).digest()
        before = self._known.get(found.name)
        if before is not None and self._digests[found.name] == digest:
            if before.devices != found.devices:
                self._known[found.name] = replace(before, devices=found.devices)
            return
        known = NodeKnowledge(devices=found.devices)
        if found.annotation is not None:
            known = await self._read(found.name, found.annotation, known)
        self._digests[found.name] = digest
        self._known[found.name] = known

    def _forget(self, name: str) -> None:
        self._known.pop(name, None)
        self._digests.pop(name, None)

    async def _read(self, name: str, said: str, known: NodeKnowledge) -> NodeKnowledge:
        try:
            if len(said) > LONGEST:
                raise ValueError(f"longer than {LONGEST} characters")  # noqa: TRY301 - one way out
            read = await asyncio.wrap_future(self._thread.submit(_published, said))
        except ValueError as error:
            if not self._complained:
                self._complained = True
                told = "node %s: its topology can't be read: %s; further ones are counted alone"
                self._log.warning(told, line(name), line(str(error)))
            return replace(known, readable=False)
        return replace(known, published=replace(read, topology=self._shapes.shared(read.topology)))


def _published(said: str) -> Published:
    made = published(said)
    if not all(0 <= (link.nvlinks or 0) <= _LINKS for link in made.topology.links.values()):
        raise ValueError(f"two GPUs have less than no NVLinks between them, or more than {_LINKS}")
    return made
