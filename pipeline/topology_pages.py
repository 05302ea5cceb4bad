"""What every listener serves of the topology: `/topology` and `/topology/best`. Read-only."""

import asyncio
from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import Final

import orjson

from pipeline.contracts import HttpRequest, HttpResponse
from pipeline.model import Layout, Snapshot
from pipeline.pages import Pages, plain
from pipeline.preferring import AskedError, count_of, prefer
from pipeline.threads import DaemonExecutor
from pipeline.topology import Availability, Topology
from pipeline.topology.document import document
from pipeline.topology.views import dot, matrix, tree
from pipeline.topology_memory import memory_of

PATH: Final = "/topology"
BEST: Final = "/topology/best"

WAITING: Final = 16
"""How many choices may wait for the one that is being worked out."""

_JSON: Final = "application/json"
_FORMATS: Final = ("json", "text", "dot")
_ASKED: Final = ("n", "must", "candidates")
_LONGEST: Final = 64


class TopologyPages:
    """Answers from the newest snapshot.

    A choice is worked out in a thread of its own, one after the other: of many GPUs it takes so
    long that nothing else on the event loop should wait for it.

    Args:
        latest: returns the newest snapshot; None before the first.
    """

    def __init__(self, latest: Callable[[], Snapshot | None]) -> None:
        self._latest = latest
        self._executor: DaemonExecutor | None = None
        self._waiting = 0
        self._shown: tuple[Layout, Topology, Availability | None, bytes] | None = None

    @property
    def pages(self) -> Pages:
        """Handlers and titles, by path."""
        return MappingProxyType(
            {
                PATH: (self.show, "how the GPUs are joined, and what of them is free"),
                BEST: (self.choose, "the best GPUs to take: ?n=4"),
            }
        )

    async def show(self, request: HttpRequest) -> HttpResponse:
        """Answer with the topology: as JSON, as a text with matrix and tree, or for Graphviz."""
        unknown = _unknown(request, ("format",))
        form = request.query.get("format", "json")
        if unknown is not None:
            return unknown
        if form not in _FORMATS:
            return plain(400, f"format={form[:_LONGEST]!r}: take {', '.join(_FORMATS)}")
        snapshot = self._latest()
        if snapshot is None or snapshot.topology is None:
            return _nothing(snapshot)
        topology, available = snapshot.topology, snapshot.availability
        if form == "text":
            return HttpResponse(overview(topology, available).encode("utf-8", "replace"))
        if form == "dot":
            body = dot(topology, available).encode("utf-8", "replace")
            return HttpResponse(body, "text/vnd.graphviz; charset=utf-8")
        return HttpResponse(self._document(snapshot, topology), _JSON)

    def _document(self, snapshot: Snapshot, topology: Topology) -> bytes:
        known = self._shown
        now = (snapshot.layout, topology, snapshot.availability)
        if known is None or any(a is not b for a, b in zip(known, now, strict=False)):
            made = document(topology, snapshot.availability, memory_of(snapshot))
            known = self._shown = (*now, orjson.dumps(made, option=orjson.OPT_APPEND_NEWLINE))
        return known[-1]

    async def choose(self, request: HttpRequest) -> HttpResponse:
        """Answer with the best `n` GPUs: of `candidates`, else of the free ones, with `must`."""
        unknown = _unknown(request, _ASKED)
        if unknown is not None:
            return unknown
        query = request.query
        snapshot = self._latest()
        try:
            n = count_of(query.get("n", ""))
            if snapshot is None or snapshot.topology is None:
                return _nothing(snapshot)
            if self._waiting >= WAITING:
                return plain(503, "too many choices are being worked out: ask again")
            work = partial(
                prefer,
                snapshot.topology,
                snapshot.availability,
                n,
                must=query.get("must", ""),
                candidates=query.get("candidates", ""),
            )
            self._executor = self._executor or DaemonExecutor("podgpu-topology")
            self._waiting += 1
            try:
                answer = await asyncio.get_running_loop().run_in_executor(self._executor, work)
            finally:
                self._waiting -= 1
        except AskedError as error:
            return plain(400, str(error))
        return HttpResponse(orjson.dumps(answer, option=orjson.OPT_APPEND_NEWLINE), _JSON)

    def close(self) -> None:
        """Let the thread end."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown()


def overview(topology: Topology, available: Availability | None) -> str:
    """Return matrix and tree as one text."""
    return f"{matrix(topology)}\n{tree(topology, available)}"


def _nothing(snapshot: Snapshot | None) -> HttpResponse:
    if snapshot is None:
        return plain(503, "nothing is known yet: ask again")
    return plain(404, "no source tells how the GPUs are joined; the source nvml does")


def _unknown(request: HttpRequest, known: tuple[str, ...]) -> HttpResponse | None:
    """Refuse what nobody would look at: a misspelt word would change the answer unseen."""
    other = next((name for name in request.query if name not in known), None)
    if other is None:
        return None
    return plain(400, f"{other[:_LONGEST]!r} means nothing here: take {', '.join(known)}")
