"""What every listener serves of the topology: `/topology` and `/topology/best`. Read-only."""

import asyncio
from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import Final

import orjson

from pipeline.component.contracts import HttpRequest, HttpResponse
from pipeline.component.holder_sources import availability_unknown_reason, topology_down_reason
from pipeline.host.daemon_threads import DaemonExecutor
from pipeline.http.builtin_pages import Pages, plain
from pipeline.model import Snapshot
from pipeline.model.availability import Availability
from pipeline.model.topology_tree import Topology
from pipeline.topology.document import document
from pipeline.topology.preferred_allocation import RequestError, choose_gpus, count_of
from pipeline.topology.text_views import dot, matrix, tree

PATH: Final = "/topology"
BEST: Final = "/topology/best"

WAITING: Final = 16
"""How many choices may wait for the one that is being worked out."""

FREE_UNKNOWN: Final = "it isn't known which GPUs are free"

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
        self._shown: tuple[Topology, Availability | None, str, bytes] | None = None

    @property
    def pages(self) -> Pages:
        """Handlers and titles, by path."""
        return MappingProxyType(
            {
                PATH: (
                    self.show,
                    f"how the GPUs are joined, and what of them is free; {BEST}?n=1 chooses some",
                ),
                BEST: (self.choose, ""),
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
            text = overview(topology, available, availability_unknown_reason(snapshot))
            return HttpResponse(text.encode("utf-8", "replace"))
        if form == "dot":
            body = dot(topology, available).encode("utf-8", "replace")
            return HttpResponse(body, "text/vnd.graphviz; charset=utf-8")
        return HttpResponse(self._document(snapshot, topology), _JSON)

    def _document(self, snapshot: Snapshot, topology: Topology) -> bytes:
        known, available, down = self._shown, snapshot.availability, topology_down_reason(snapshot)
        if (
            known is None
            or known[0] is not topology
            or known[1] is not available
            or known[2] != down
        ):
            made = document(topology, available, down=down)
            body = orjson.dumps(made, option=orjson.OPT_APPEND_NEWLINE)
            known = self._shown = (topology, available, down, body)
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
            candidates = query.get("candidates")
            if candidates is None and (unsure := availability_unknown_reason(snapshot)):
                return plain(503, f"{FREE_UNKNOWN}: {unsure}")
            if self._waiting >= WAITING:
                return plain(503, "too many choices are being worked out: ask again")
            work = partial(
                choose_gpus,
                snapshot.topology,
                snapshot.availability,
                n,
                required=query.get("must", ""),
                candidates=candidates,
            )
            self._executor = self._executor or DaemonExecutor("podgpu-topology")
            self._waiting += 1
            try:
                answer = await asyncio.get_running_loop().run_in_executor(self._executor, work)
            finally:
                self._waiting -= 1
        except RequestError as error:
            return plain(400, str(error))
        return HttpResponse(orjson.dumps(answer, option=orjson.OPT_APPEND_NEWLINE), _JSON)

    def close(self) -> None:
        """Let the thread end."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown()


def overview(topology: Topology, available: Availability | None, unsure: str = "") -> str:
    """Return matrix and tree as one text; before them, why it isn't known what is free."""
    head = f"{FREE_UNKNOWN}: {unsure}\n\n" if unsure else ""
    return f"{head}{matrix(topology)}\n{tree(topology, available)}"


def _nothing(snapshot: Snapshot | None) -> HttpResponse:
    if snapshot is None:
        return plain(503, "nothing is known yet: ask again")
    return plain(404, "no source tells how the GPUs are joined; the source nvml does")


def _unknown(request: HttpRequest, known: tuple[str, ...]) -> HttpResponse | None:
    """Refuse what nobody would look at: a misspelt word would change the answer unseen."""
    for name in request.query:
        if name not in known:
            return plain(400, f"{name[:_LONGEST]!r} means nothing here: take {', '.join(known)}")
        if name in request.repeated:
            return plain(400, f"{name} is given twice: give it once, with commas between GPUs")
    return None
