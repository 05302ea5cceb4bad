"""Looks after one socket: finds it, asks it, and finds it again when the kubelet restarts."""

import asyncio
from pathlib import Path

from pipeline.component.contracts import SourceContext
from pipeline.files import Watcher
from pipeline.model import NS, Claim
from pipeline.model.plugin_ids import settled
from sources.podresources.claim_report import Report
from sources.podresources.completeness import RollCall
from sources.podresources.errors import KubeletError, Result
from sources.podresources.kubelet_connection import Kubelet
from sources.podresources.options import Options
from sources.podresources.request_pace import Pace, Peeks
from sources.podresources.responses import (
    BadAnswerError,
    Held,
    Selection,
    get_request,
    is_prepared,
    read_allocatable,
    read_list,
)
from sources.podresources.socket_path import Place, look

_PEEKED = 4
"""How many pods are looked after at a time."""

# A kubelet that has just started answers before it has been told of its pods, for a second or so.
_WARMING_NS = 10 * NS

# However often it is woken, it takes a turn no more often than this.
_REST_NS = NS // 50


class Lane:
    """One socket of the source.

    Args:
        path: the socket.
        options: the source's.
        selection: what of the answers counts.
        ctx: the source's context.
        report: told what the socket says.
    """

    def __init__(
        self, path: Path, options: Options, selection: Selection, ctx: SourceContext, report: Report
    ) -> None:
        self._path = path
        self._timeout = options.timeout
        self._selection = selection
        self._ctx = ctx
        self._report = report
        self._watcher = Watcher(path)
        self._pace = Pace(options.interval.ns)
        self._peeks = Peeks(options.interval.ns)
        self._roll = RollCall(options.max_age.ns)
        self._place: Place | None = None
        self._kubelet: Kubelet | None = None
        self._claims: tuple[Claim, ...] = ()
        self._warm_ns = 0
        self._grumbled: dict[str, tuple[str, str]] = {}
        self._asked_what_is_offered = False

    def hint(self) -> None:
        """Ask soon: something may have changed."""
        self._pace.want()
        self._watcher.nudge()

    async def run(self) -> None:
        """Ask until cancelled."""
        with self._watcher as watcher:
            try:
                while True:
                    begun = self._now()
                    await self._turn(watcher)
                    wait = max(self._next() - self._now(), 0) / NS
                    await watcher.wait(watcher.patience(wait))
                    if (rest := begun + _REST_NS - self._now()) > 0:
                        await self._ctx.clock.sleep(rest / NS)
            finally:
                await self._disconnect()

    async def _turn(self, watcher: Watcher) -> None:
        watcher.open()
        watcher.forget()
        place = await asyncio.to_thread(self._locate)
        watcher.tell(self._ctx.log)
        if place != self._place:
            await self._move(place)
        now = self._now()
        if now >= self._pace.next_ns:
            await self._ask(now)
        elif self._peeks.next_ns is not None and now >= self._peeks.next_ns:
            await self._peek()
        await self._report.pass_time()

    async def _move(self, place: Place) -> None:
        """Begin anew, with what may be another kubelet."""
        now, age_ns = self._ctx.clock.now(), 0
        if self._place is not None:
            self._warm_ns = now.mono_ns + _WARMING_NS
        elif not isinstance(place, str):
            # It was there before us: nothing but the file tells for how long.
            age_ns = now.wall_ns - place[2]
        self._place = place
        self._roll.moved(now.mono_ns, age_ns)
        self._report.moved(self._path)
        self._pace.moved()
        await self._disconnect()

    def _next(self) -> int:
        times = (self._pace.next_ns, self._peeks.next_ns, self._report.expires_ns(self._path))
        return min(at for at in times if at is not None)

    def _locate(self) -> Place:
        """Find out where the path leads, and watch it. Blocking."""
        self._watcher.arm()
        return look(self._path)

    async def _ask(self, now: int) -> None:
        all_due = self._pace.begun(now)
        try:
            kubelet = self._connect()
            method, data = await kubelet.list()
            held = await asyncio.to_thread(self._understand, data, f"{self._path} {method}")
        except KubeletError as error:
            await self._failed(error)
            return
        if now < self._warm_ns and _lacks(held.claims, self._claims):
            self._pace.again(now)
            return
        self._pace.answered()
        self._claims = held.claims
        self._peeks.listed(held.unprepared if kubelet.tells_of_one_pod else (), self._now())
        whole = self._roll.listed(self._now(), (claim.subject for claim in held.claims))
        # Before the first list, since what is offered tells what of the rest is no scheduler's.
        first = not self._asked_what_is_offered
        if first:
            await self._ask_what_is_offered(kubelet)
        await self._report.answered(self._path, held.claims, whole=whole)
        if all_due and not first:
            await self._ask_what_is_offered(kubelet)

    def _understand(self, data: bytes, origin: str) -> Held:
        try:
            held = read_list(data, origin, self._selection)
        except BadAnswerError as error:
            raise self._bad("List", error) from None
        if look(self._path) != self._place:
            # The library connects anew by itself: this may be the word of one that just started.
            raise KubeletError("unreachable", f"{self._path}: was replaced while it was asked")
        return Held(settled(self._claims, held.claims), held.unprepared)

    async def _ask_what_is_offered(self, kubelet: Kubelet) -> None:
        method = "GetAllocatableResources"
        self._asked_what_is_offered = True
        try:
            data = await kubelet.allocatable()
            if data is not None:
                offered = await asyncio.to_thread(read_allocatable, data, self._selection)
                await self._report.offered(self._path, offered)
            self._grumbled.pop(method, None)
        except KubeletError as error:
            self._grumble(method, error)
        except BadAnswerError as error:
            self._grumble(method, self._bad(method, error))

    async def _peek(self) -> None:
        """Look whether claims are prepared by now; if so, a List tells them all at one moment."""
        try:
            kubelet = self._connect()
            for namespace, pod in self._peeks.some(_PEEKED):
                data = await kubelet.get(get_request(namespace, pod))
                if data is not None and is_prepared(data):
                    self._pace.want()
            self._grumbled.pop("Get", None)
        except KubeletError as error:
            if error.result in ("unreachable", "rejected"):
                await self._failed(error)
                return
            if error.result == "timeout":
                await self._disconnect()
            self._grumble("Get", error)
        except BadAnswerError as error:
            self._grumble("Get", self._bad("Get", error))
        self._peeks.looked(self._now())

    def _bad(self, method: str, error: BadAnswerError) -> KubeletError:
        return KubeletError("failed", f"{self._path}: the answer to {method} {error}")

    def _grumble(self, method: str, error: KubeletError) -> None:
        """Say what is wrong with a method that isn't List.

        Claims are what counts: they were answered, and what was heard before stands.
        """
        if self._grumbled.get(method) != error.kind:
            self._ctx.log.warning("%s", error)
        self._grumbled[method] = error.kind

    async def _failed(self, error: KubeletError) -> None:
        self._peeks.listed((), self._now())
        if error.result in ("unreachable", "timeout"):
            await self._disconnect()
        if self._pace.failed(self._now(), error.result):
            await self._report.failed(self._path, error)

    def _connect(self) -> Kubelet:
        if isinstance(self._place, str):
            raise KubeletError("unreachable", self._place)
        if self._kubelet is None:
            self._kubelet = Kubelet(self._path, self._timeout, self._count)
        return self._kubelet

    async def _disconnect(self) -> None:
        kubelet, self._kubelet = self._kubelet, None
        if kubelet is not None:
            await kubelet.close()

    def _count(self, method: str, result: Result) -> None:
        self._ctx.meter.add("podgpu_source_requests_total", 1, method=method, result=result)

    def _now(self) -> int:
        return self._ctx.clock.now().mono_ns


def _lacks(now: tuple[Claim, ...], before: tuple[Claim, ...]) -> bool:
    """Return whether a container of before holds nothing now."""
    return not {claim.subject for claim in before} <= {claim.subject for claim in now}
