"""Handles the scheduler's requests: parses them, filters or scores nodes, and responds in time."""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, ParamSpec, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from pipeline.base.clock import Clock
from pipeline.base.safe_text import line
from pipeline.base.telemetry import Telemetry
from pipeline.component.contracts import HttpRequest, HttpResponse
from pipeline.host.daemon_threads import DaemonExecutor
from pipeline.http.builtin_pages import plain
from pipeline.http.fair_queue import BusyError, FairQueue
from pipeline.model import NS
from pipeline.model.topology_tree import Topology
from podgpu.extender.node_cache import Nodes
from podgpu.extender.node_selection.node_filter import FilterResult, filter_node, unfiltered
from podgpu.extender.node_selection.node_fit import Fit, fit, scored
from podgpu.extender.node_selection.node_state import AtHand
from podgpu.extender.node_selection.pod_demand import Demand, Requirement, demand
from podgpu.extender.scheduler_messages import (
    MalformedError,
    Question,
    filtered,
    parse_question,
    prioritized,
    refused,
)

P = ParamSpec("P")
T = TypeVar("T")

WAITING: Final = 14
"""How many requests may wait. A scheduler sends one at a time; a second scheduler may send one when
the leader changes."""

THREADS: Final = 2
"""How many requests are processed at the same time, so that a filter request does not wait for the
prioritize request of another scheduler."""

_JSON: Final = "application/json"
_LATE: Final = "the node was not checked in time"
_UNREAD: Final = "the request was not parsed in time"

Verb: TypeAlias = Literal["filter", "prioritize"]
VERBS: Final[tuple[Verb, ...]] = ("filter", "prioritize")
RESULTS: Final = (
    "ok", "malformed", "timeout", "busy", "failed", "too_long", "encoded", "unfinished",
)  # fmt: skip
"""Results of requests. `too_long`, `encoded` and `unfinished` mean that the request was not read.
`busy` can mean that too, if there was no memory for the request."""


CACHED: Final = 4096
"""Maximum number of entries, of about 300 bytes each: a node with 8 GPUs has at most 255 different
sets of free GPUs."""

_Key: TypeAlias = tuple[int, int, Requirement | None, int]


class StoppedError(Exception):
    """The calculation was stopped, because its result is no longer needed."""


class FitCache:
    """A cache of fits. Safe to use from any thread.

    The cache does not keep a topology alive: the fits of a topology are dropped together with it.

    Args:
        most: maximum number of entries. When it is reached, all entries are dropped.
    """

    def __init__(self, most: int = CACHED) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._known: WeakKeyDictionary[Topology, dict[_Key, Fit | None]] = WeakKeyDictionary()

    def fit(
        self,
        topology: Topology,
        free: int,
        count: int,
        required: Requirement | None,
        *,
        unsure: int = 0,
        stop: Callable[[], bool] = lambda: False,
    ) -> Fit | None:
        """Return how well a pod fits, as `podgpu.extender.node_selection.node_fit.fit` does.

        Raises:
            StoppedError: `stop` returned True.
        """
        key = (free, count, required, unsure)
        with self._lock:
            known = self._known.get(topology, {})
            if key in known:
                return known[key]
        result = fit(topology, free, count, required, unsure=unsure, stop=stop)
        if stop():
            # The result may not be the best one.
            raise StoppedError
        with self._lock:
            if len(self) >= self._most:
                self._known.clear()
            self._known.setdefault(topology, {})[key] = result
        return result

    def __len__(self) -> int:
        return sum(map(len, self._known.values()))


@dataclass(frozen=True, slots=True)
class PendingQuestion:
    """A request that was parsed and is being processed.

    Attributes:
        question: the request.
        demand: what the pod of the request needs.
        now: time of the request, in seconds of Unix time.
        abandoned: set when the result of the calculation is no longer needed.
    """

    question: Question
    demand: Demand
    now: float
    abandoned: threading.Event


class _UnreadError(Exception):
    """The time limit was reached before the request was parsed."""


class Service:
    """Handlers for the scheduler's two verbs, filter and prioritize.

    Requests are processed in threads, because many or large nodes would block the event loop.

    Args:
        nodes: the known Nodes.
        resources: names of the resources that are GPUs.
        timeout: seconds after which a default response is sent.
        clock: the clock for ages and durations.
        telemetry: counts requests.
        log: receives warnings about invalid requests.
    """

    def __init__(
        self,
        nodes: Nodes,
        resources: Sequence[str],
        timeout: float,
        *,
        clock: Clock,
        telemetry: Telemetry,
        log: logging.Logger,
    ) -> None:
        self._nodes = nodes
        self._resources = tuple(resources)
        self._timeout = timeout
        self._clock = clock
        self._telemetry = telemetry
        self._log = log
        self._fits = FitCache()
        self._threads = DaemonExecutor("podgpu-extender", THREADS)
        self._turns = FairQueue(THREADS, WAITING)
        # Separate, so that slow requests do not delay default responses.
        self._late_thread = DaemonExecutor("podgpu-extender-late")
        self._logged_faults: set[str] = set()
        for verb in VERBS:
            for result in RESULTS:
                self.count(verb, result, 0)

    async def filter(self, request: HttpRequest) -> HttpResponse:
        """Handle `/filter`: ExtenderArgs to ExtenderFilterResult."""
        return await self._respond(
            "filter",
            request,
            self._filter,
            late=lambda one: filtered(
                one.question, [unfiltered(one.demand, _LATE)] * len(one.question.names)
            ),
            wrong=lambda _, text: HttpResponse(refused(f"podgpu: {text}"), _JSON),
        )

    async def prioritize(self, request: HttpRequest) -> HttpResponse:
        """Handle `/prioritize`: ExtenderArgs to HostPriorityList."""
        return await self._respond(
            "prioritize",
            request,
            self._prioritize,
            late=lambda one: prioritized(one.question, [0] * len(one.question.names)),
            wrong=plain,
        )

    def count(self, verb: Verb, result: str, amount: float = 1) -> None:
        """Count a request by verb and result, also if its body was not read (`Refusal`)."""
        labels = (("verb", verb), ("result", result))
        self._telemetry.add("podgpu_extender_requests_total", amount, labels)

    def close(self) -> None:
        """End the threads that process requests."""
        self._threads.shutdown()
        self._late_thread.shutdown()

    async def _respond(
        self,
        verb: Verb,
        request: HttpRequest,
        work: Callable[[PendingQuestion], bytes],
        *,
        late: Callable[[PendingQuestion], bytes],
        wrong: Callable[[int, str], HttpResponse],
    ) -> HttpResponse:
        """Respond to a request, and count it.

        Args:
            verb: the scheduler's verb.
            request: the request.
            work: function that makes the response, in a thread.
            late: function that makes the default response after the time limit.
            wrong: function that makes the response to a request that is invalid or was not parsed
                in time, from HTTP status and reason.
        """
        start, result = self._clock.now(), "failed"
        try:
            body, result = await self._process(request, work, late)
            return HttpResponse(body, _JSON)
        except MalformedError as error:
            result = "malformed"
            self._log_malformed(verb, error)
            return wrong(400, str(error))
        except BusyError:
            result = "busy"
            return plain(503, "too many requests: try again later")
        except _UnreadError:
            result = "timeout"
            return wrong(503, _UNREAD)
        finally:
            took = start.seconds_until(self._clock.now())
            self._telemetry.observe(
                "podgpu_extender_request_duration_seconds", took, (("verb", verb),)
            )
            self.count(verb, result)

    async def _process(
        self,
        request: HttpRequest,
        work: Callable[[PendingQuestion], bytes],
        late: Callable[[PendingQuestion], bytes],
    ) -> tuple[bytes, str]:
        deadline = asyncio.get_running_loop().time() + self._timeout
        try:
            async with asyncio.timeout_at(deadline):
                await self._turns.acquire(request.source)
        except TimeoutError:
            raise _UnreadError from None
        one, abandoned = None, threading.Event()
        limit = asyncio.timeout_at(deadline)
        try:
            async with limit:
                now = self._clock.now().wall_ns / NS
                one = await _run(self._threads, self._parse, request.body, now, abandoned)
                return await _run(self._threads, work, one), "ok"
        except TimeoutError:
            if not limit.expired():
                raise
            # Any response needs the names of the nodes.
            if one is None:
                raise _UnreadError from None
            abandoned.set()
            return await _run(self._late_thread, late, one), "timeout"
        finally:
            abandoned.set()
            self._turns.release()

    def _parse(self, body: bytes, now: float, abandoned: threading.Event) -> PendingQuestion:
        question = parse_question(body)
        try:
            return PendingQuestion(question, demand(question.pod, self._resources), now, abandoned)
        except ValueError as error:
            raise MalformedError("invalid quantity", str(error)) from None

    def _filter(self, one: PendingQuestion) -> bytes:
        return filtered(one.question, [self._filter_node(one, name) for name in one.question.names])

    def _filter_node(self, one: PendingQuestion, name: str) -> FilterResult:
        if one.abandoned.is_set():
            raise StoppedError
        return filter_node(one.demand, self._nodes.known_of(name), one.now)

    def _prioritize(self, one: PendingQuestion) -> bytes:
        fits = [self._fit(one, name) for name in one.question.names]
        return prioritized(one.question, scored(fits))

    def _fit(self, one: PendingQuestion, name: str) -> Fit | None:
        if one.abandoned.is_set():
            raise StoppedError
        if not one.demand.count or one.demand.wrong:
            return None
        found = self._nodes.known_of(name).at_hand(one.now)
        if not isinstance(found, AtHand):
            return None
        return self._fits.fit(
            found.published.topology,
            found.free,
            one.demand.count,
            one.demand.requirement,
            unsure=found.unsure,
            stop=one.abandoned.is_set,
        )

    def _log_malformed(self, verb: Verb, error: MalformedError) -> None:
        """Log an error unless one of its kind was logged: it occurs again with each pod."""
        if error.dedup_key not in self._logged_faults:
            self._logged_faults.add(error.dedup_key)
            self._log.warning("/%s: invalid request: %s", verb, line(str(error)))


async def _run(
    threads: DaemonExecutor, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    future = asyncio.wrap_future(threads.submit(work, *args, **kwargs))
    try:
        return await future
    finally:
        # The traceback of an error keeps this frame, and so the future, and the request.
        del future
