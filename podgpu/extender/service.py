"""Answers the scheduler: reads a question, judges the nodes, and is never late."""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, ParamSpec, TypeAlias, TypeVar

from pipeline.base.clock import Clock
from pipeline.base.safe_text import line
from pipeline.base.telemetry import Telemetry
from pipeline.component.contracts import HttpRequest, HttpResponse, Refusal
from pipeline.host.daemon_threads import DaemonExecutor
from pipeline.http.builtin_pages import plain
from pipeline.http.fair_queue import BusyError, FairQueue
from pipeline.model import NS
from podgpu.extender.fit_cache import FitCache
from podgpu.extender.node_cache import Nodes
from podgpu.extender.node_selection.node_filter import FilterResult, filter_node, unfiltered
from podgpu.extender.node_selection.node_fit import Fit
from podgpu.extender.node_selection.node_score import scored
from podgpu.extender.node_selection.node_state import AtHand
from podgpu.extender.node_selection.pod_demand import Demand, demand
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
"""Questions that may wait; a scheduler has one, a second one after a change of leaders."""

THREADS: Final = 2
"""Questions that are answered at a time: a filter doesn't wait for somebody else's choices."""

_JSON: Final = "application/json"
_LATE: Final = "there was no time to look at the node"
_UNREAD: Final = "there was no time to read the question"

Verb: TypeAlias = Literal["filter", "prioritize"]
VERBS: Final[tuple[Verb, ...]] = ("filter", "prioritize")
RESULTS: Final = (
    "ok", "malformed", "timeout", "busy", "failed", "too_long", "encoded", "unfinished",
)  # fmt: skip
"""The last three are of questions that nobody read; `busy` is too, where there was no room."""


@dataclass(frozen=True, slots=True)
class PendingQuestion:
    """A question that was understood.

    Attributes:
        question: as it was sent.
        demand: what its pod asks for.
        now: when it was asked, in Unix seconds.
        abandoned: set once nobody waits for the answer any more.
    """

    question: Question
    demand: Demand
    now: float
    abandoned: threading.Event


class _AbandonedError(Exception):
    """Nobody waits for the answer any more."""


class _UnreadError(Exception):
    """Time was up before the question was understood."""


class Service:
    """Handlers for the scheduler's two verbs.

    Questions are read and judged in threads: of many nodes, or of large ones, that takes so long
    that nothing else on the event loop should wait for it.

    Args:
        nodes: what is known of the nodes.
        resources: names of the resources that are GPUs.
        timeout: seconds after which an answer that takes nothing for granted has to do.
        clock: for ages and durations.
        telemetry: where requests are counted.
        log: for questions that make no sense.
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
        # Whoever holds up those would hold up what has to do instead.
        self._instead = DaemonExecutor("podgpu-extender-late")
        self._logged_faults: set[str] = set()
        for verb in VERBS:
            for result in RESULTS:
                self._count(verb, result, 0)

    async def filter(self, request: HttpRequest) -> HttpResponse:
        """Answer `/filter`: ExtenderArgs with an ExtenderFilterResult."""
        return await self._answered(
            "filter",
            request,
            self._filter,
            late=self._unfiltered,
            wrong=lambda _, told: HttpResponse(refused(f"podgpu: {told}"), _JSON),
        )

    async def prioritize(self, request: HttpRequest) -> HttpResponse:
        """Answer `/prioritize`: ExtenderArgs with a HostPriorityList."""
        return await self._answered(
            "prioritize",
            request,
            self._prioritize,
            late=lambda one: prioritized(one.question, [0] * len(one.question.names)),
            wrong=plain,
        )

    def refused(self, verb: Verb, why: Refusal) -> None:
        """Count a question that was never asked, for its body."""
        self._count(verb, why)

    def close(self) -> None:
        """Let the threads end."""
        self._threads.shutdown()
        self._instead.shutdown()

    async def _answered(
        self,
        verb: Verb,
        request: HttpRequest,
        work: Callable[[PendingQuestion], bytes],
        *,
        late: Callable[[PendingQuestion], bytes],
        wrong: Callable[[int, str], HttpResponse],
    ) -> HttpResponse:
        """Answer, and count it.

        Args:
            verb: of the scheduler's.
            request: the question.
            work: answers it, in a thread.
            late: answers it when time is up.
            wrong: answers what can't be understood, with an HTTP status and why.
        """
        begun, result = self._clock.now(), "failed"
        try:
            answer, result = await self._worked_out(request, work, late)
            return HttpResponse(answer, _JSON)
        except MalformedError as error:
            result = "malformed"
            self._log_malformed(verb, error)
            return wrong(400, str(error))
        except BusyError:
            result = "busy"
            return plain(503, "too many questions are being answered: ask again")
        except _UnreadError:
            result = "timeout"
            return wrong(503, _UNREAD)
        finally:
            took = begun.seconds_until(self._clock.now())
            self._telemetry.observe(
                "podgpu_extender_request_duration_seconds", took, (("verb", verb),)
            )
            self._count(verb, result)

    async def _worked_out(
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
        try:
            return await self._in_turn(request.body, work, late, deadline)
        finally:
            self._turns.release()

    async def _in_turn(
        self,
        body: bytes,
        work: Callable[[PendingQuestion], bytes],
        late: Callable[[PendingQuestion], bytes],
        deadline: float,
    ) -> tuple[bytes, str]:
        given_up = threading.Event()
        now = self._clock.now().wall_ns / NS
        try:
            # What nodes there are has to be known for any answer.
            one = await self._with_deadline(deadline, self._understood, body, now, given_up)
            if one is None:
                raise _UnreadError
            answer = await self._with_deadline(deadline, work, one)
            if answer is not None:
                return answer, "ok"
            given_up.set()
            return await _made(self._instead, late, one), "timeout"
        finally:
            given_up.set()

    async def _with_deadline(
        self, deadline: float, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T | None:
        """Return what a thread makes; None if time was up before."""
        limit = asyncio.timeout_at(deadline)
        try:
            async with limit:
                return await _made(self._threads, work, *args, **kwargs)
        except TimeoutError:
            if not limit.expired():
                raise
            return None

    def _understood(self, body: bytes, now: float, abandoned: threading.Event) -> PendingQuestion:
        question = parse_question(body)
        try:
            return PendingQuestion(question, demand(question.pod, self._resources), now, abandoned)
        except ValueError as error:
            raise MalformedError("a quantity can't be read", str(error)) from None

    def _filter(self, one: PendingQuestion) -> bytes:
        return filtered(one.question, [self._judged(one, name) for name in one.question.names])

    def _judged(self, one: PendingQuestion, name: str) -> FilterResult:
        if one.abandoned.is_set():
            raise _AbandonedError
        return filter_node(one.demand, self._nodes.known_of(name), one.now)

    def _unfiltered(self, one: PendingQuestion) -> bytes:
        return filtered(one.question, [unfiltered(one.demand, _LATE)] * len(one.question.names))

    def _prioritize(self, one: PendingQuestion) -> bytes:
        fits = [self._fit(one, name) for name in one.question.names]
        return prioritized(one.question, scored(fits))

    def _fit(self, one: PendingQuestion, name: str) -> Fit | None:
        if one.abandoned.is_set():
            raise _AbandonedError
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
        """Say what was wrong, once for each kind: it comes again with each pod."""
        if error.dedup_key not in self._logged_faults:
            self._logged_faults.add(error.dedup_key)
            self._log.warning("/%s was asked what makes no sense: %s", verb, line(str(error)))

    def _count(self, verb: Verb, result: str, amount: float = 1) -> None:
        labels = (("verb", verb), ("result", result))
        self._telemetry.add("podgpu_extender_requests_total", amount, labels)


async def _made(
    threads: DaemonExecutor, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    made = asyncio.wrap_future(threads.submit(work, *args, **kwargs))
    try:
        return await made
    finally:
        # An error has this frame in its traceback, and would keep itself and the question.
        del made
