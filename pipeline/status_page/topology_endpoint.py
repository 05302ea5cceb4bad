"""Serve `/topology` and `/topology/best` on every listener. Nothing is changed or allocated."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import orjson

from pipeline.component.contracts import HttpRequest, HttpResponse
from pipeline.component.holder_sources import (
    availability_unknown_reason,
    topology_down_reason,
    topology_missing_reason,
)
from pipeline.host.daemon_threads import DaemonExecutor
from pipeline.http.builtin_pages import Pages, plain
from pipeline.model import Snapshot
from pipeline.status_page.data_notes import topology_notes
from pipeline.topology.document import document
from pipeline.topology.preferred_allocation import RequestError, choose_gpus, count_of
from pipeline.topology.text_views import dot, matrix, tree

PATH: Final = "/topology"
BEST: Final = "/topology/best"

WAITING: Final = 16
"""Maximum number of requests to `/topology/best` that are computed or wait at a time."""

_FREE_UNKNOWN: Final = "it is unknown which GPUs are free"

_FORMATS: Final = ("json", "text", "dot")
_MAX_CHARACTERS: Final = 64


class TopologyPages:
    """HTTP handlers that respond from the newest snapshot.

    Choices are computed one after the other in a thread, because with many GPUs they take too long
    for the event loop.

    Args:
        latest: function that returns the newest snapshot; None before the first.
        notes: sentences for people about all data, as that it is a recording.
    """

    def __init__(self, latest: Callable[[], Snapshot | None], notes: tuple[str, ...] = ()) -> None:
        self._latest = latest
        self._notes = notes
        self._executor: DaemonExecutor | None = None
        self._waiting = 0

    @property
    def pages(self) -> Pages:
        """Handler and title of each page, by path."""
        title = f"topology of the GPUs, and which are free; {BEST}?n=1 chooses the best"
        return {PATH: (self.show, title), BEST: (self.choose, "")}

    async def show(self, request: HttpRequest) -> HttpResponse:
        """Serve the topology as JSON, as text with a matrix and a tree, or as a Graphviz graph."""
        if unknown := _unknown(request, ("format",)):
            return unknown
        form = request.query.get("format", "json")
        if form not in _FORMATS:
            return plain(
                400, f"format={form[:_MAX_CHARACTERS]!r}: must be one of {', '.join(_FORMATS)}"
            )
        snapshot = self._latest()
        if snapshot is None or snapshot.topology is None:
            return _no_topology(snapshot)
        topology, available = snapshot.topology, snapshot.availability
        notes = (*self._notes, *topology_notes(snapshot))
        if form == "text":
            reason = availability_unknown_reason(snapshot)
            heads = (*notes, f"{_FREE_UNKNOWN}: {reason}") if reason else notes
            head = "\n".join(heads) + "\n\n" if heads else ""
            text = f"{head}{matrix(topology)}\n{tree(topology, available)}"
            return HttpResponse(text.encode("utf-8", "replace"))
        if form == "dot":
            body = dot(topology, available, notes).encode("utf-8", "replace")
            return HttpResponse(body, "text/vnd.graphviz; charset=utf-8")
        down = topology_down_reason(snapshot)
        return _json(document(topology, available, down=down, notes=notes))

    async def choose(self, request: HttpRequest) -> HttpResponse:
        """Serve the best `n` GPUs, including `must`, of `candidates` or else of the free GPUs."""
        if unknown := _unknown(request, ("n", "must", "candidates")):
            return unknown
        query = request.query
        snapshot = self._latest()
        try:
            n = count_of(query.get("n", ""))
            if snapshot is None or snapshot.topology is None:
                return _no_topology(snapshot)
            candidates = query.get("candidates")
            if candidates is None and (reason := availability_unknown_reason(snapshot)):
                return plain(503, f"{_FREE_UNKNOWN}: {reason}")
            if self._waiting >= WAITING:
                return plain(503, "too many requests are waiting for a choice: try again later")
            work = partial(choose_gpus, snapshot.topology, snapshot.availability, n)
            work = partial(work, must=query.get("must", ""), candidates=candidates)
            self._executor = self._executor or DaemonExecutor("podgpu-topology")
            self._waiting += 1
            try:
                answer = await asyncio.get_running_loop().run_in_executor(self._executor, work)
            finally:
                self._waiting -= 1
        except RequestError as error:
            return plain(400, str(error))
        notes = (*self._notes, *topology_notes(snapshot))
        return _json(answer | ({"notes": notes} if notes else {}))

    def close(self) -> None:
        """Stop the thread after the current computation."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown()


def _json(document: object) -> HttpResponse:
    body = orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)
    return HttpResponse(body, "application/json")


def _no_topology(snapshot: Snapshot | None) -> HttpResponse:
    if snapshot is None:
        return plain(503, "no data yet: try again later")
    if reason := topology_missing_reason(snapshot):
        return plain(503, reason)
    return plain(404, "no source reports the topology; add a source of kind nvml")


def _unknown(request: HttpRequest, known: tuple[str, ...]) -> HttpResponse | None:
    """Return an error response if a parameter is unknown or repeated; else None.

    A typo must not change the result.
    """
    for name in request.query:
        if name not in known:
            return plain(
                400,
                f"unknown parameter {name[:_MAX_CHARACTERS]!r}: must be one of {', '.join(known)}",
            )
        if name in request.repeated:
            return plain(400, f"{name} is given twice: give it once, with commas between GPUs")
    return None
