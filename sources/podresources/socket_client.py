"""Client of one socket: finds it, sends requests, and reconnects when the kubelet restarts."""

import asyncio
from pathlib import Path

from pipeline.component.contracts import SourceContext
from pipeline.files import Watcher
from pipeline.model import NS, Claim
from pipeline.model.plugin_ids import reuse_unchanged
from sources.podresources.claim_report import KubeletReport
from sources.podresources.completeness import ListCompleteness
from sources.podresources.errors import KubeletError, Result
from sources.podresources.kubelet_connection import Kubelet
from sources.podresources.options import Options
from sources.podresources.request_pace import PreparationPolls, RequestSchedule
from sources.podresources.responses import (
    ListedClaims,
    Selection,
    encode_get_request,
    is_prepared,
    read_allocatable,
    read_list,
)
from sources.podresources.socket_path import SocketId, find_socket

_MAX_POLLED = 4
"""Number of unprepared pods that are polled at a time."""

# A kubelet that has just started responds for a second or so before it knows its pods.
_WARM_UP_NS = 10 * NS

# Minimum time between two steps, however often the client is woken.
_REST_NS = NS // 50


class SocketClient:
    """Client of one socket of the source.

    Args:
        path: the socket.
        options: the source's options.
        selection: which resources and drivers are used.
        ctx: the source's context.
        report: receives the socket's claims and errors.
    """

    def __init__(
        self,
        path: Path,
        options: Options,
        selection: Selection,
        ctx: SourceContext,
        report: KubeletReport,
    ) -> None:
        self._path = path
        self._timeout = options.timeout
        self._selection = selection
        self._ctx = ctx
        self._report = report
        self._watcher = Watcher(path)
        self._schedule = RequestSchedule(options.interval.ns)
        self._preparation_polls = PreparationPolls(options.interval.ns)
        self._completeness = ListCompleteness(options.max_age.ns)
        self._socket_id: SocketId | None = None
        self._kubelet: Kubelet | None = None
        self._claims: tuple[Claim, ...] = ()
        self._warm_ns = 0
        self._warned: dict[str, tuple[str, str]] = {}
        self._allocatable_requested = False

    def request_soon(self) -> None:
        """Send a request soon, because something may have changed."""
        self._schedule.request_soon()
        self._watcher.wake()

    async def run(self) -> None:
        """Query the kubelet until cancelled."""
        with self._watcher as watcher:
            try:
                while True:
                    started = self._now()
                    await self._step(watcher)
                    wait = max(self._next_ns() - self._now(), 0) / NS
                    await watcher.wait(watcher.max_wait(wait))
                    if (rest := started + _REST_NS - self._now()) > 0:
                        await self._ctx.clock.sleep(rest / NS)
            finally:
                await self._disconnect()

    async def _step(self, watcher: Watcher) -> None:
        watcher.open()
        watcher.forget()
        socket_id = await asyncio.to_thread(self._find_socket)
        watcher.log_state(self._ctx.log)
        if socket_id != self._socket_id:
            await self._reset(socket_id)
        now = self._now()
        if now >= self._schedule.next_ns:
            await self._query(now)
        elif self._preparation_polls.next_ns is not None and now >= self._preparation_polls.next_ns:
            await self._poll_preparation()
        await self._report.expire()

    async def _reset(self, socket_id: SocketId) -> None:
        """Start again with a new socket, which may be that of another kubelet."""
        now, age_ns = self._ctx.clock.now(), 0
        if self._socket_id is not None:
            self._warm_ns = now.mono_ns + _WARM_UP_NS
        elif not isinstance(socket_id, str):
            # The socket is older than podgpu: its age is known from the file only.
            age_ns = now.wall_ns - socket_id[2]
        self._socket_id = socket_id
        self._completeness.socket_changed(now.mono_ns, age_ns)
        self._report.socket_changed(self._path)
        self._schedule.reset()
        await self._disconnect()

    def _next_ns(self) -> int:
        times = (
            self._schedule.next_ns,
            self._preparation_polls.next_ns,
            self._report.expires_ns(self._path),
        )
        return min(at for at in times if at is not None)

    def _find_socket(self) -> SocketId:
        """Find the socket at the path, and watch the path. Blocking."""
        self._watcher.arm()
        return find_socket(self._path)

    async def _query(self, now: int) -> None:
        all_due = self._schedule.record_request(now)
        try:
            kubelet = self._connect()
            method, data = await kubelet.list()
            held = await asyncio.to_thread(self._parse_list, data, f"{self._path} {method}")
        except KubeletError as error:
            await self._on_failure(error)
            return
        if now < self._warm_ns and _lost_holders(held.claims, self._claims):
            self._schedule.retry_soon(now)
            return
        self._schedule.record_response()
        self._claims = held.claims
        self._preparation_polls.record_list(
            held.unprepared if kubelet.supports_get else (), self._now()
        )
        complete = self._completeness.record_list(
            self._now(), (claim.subject for claim in held.claims)
        )
        # Before the first list: the join then knows which devices are managed by a plugin.
        first = not self._allocatable_requested
        if first:
            await self._query_allocatable(kubelet)
        await self._report.on_claims(self._path, held.claims, is_complete=complete)
        if all_due and not first:
            await self._query_allocatable(kubelet)

    def _parse_list(self, data: bytes, origin: str) -> ListedClaims:
        held = read_list(data, origin, self._selection)
        if find_socket(self._path) != self._socket_id:
            # The library reconnects by itself, so the response may be that of a new kubelet.
            raise KubeletError(
                "unreachable", f"{self._path}: the socket was replaced during the request"
            )
        return ListedClaims(reuse_unchanged(self._claims, held.claims), held.unprepared)

    async def _query_allocatable(self, kubelet: Kubelet) -> None:
        method = "GetAllocatableResources"
        self._allocatable_requested = True
        try:
            data = await kubelet.allocatable()
            if data is not None:
                origin = f"{self._path} {method}"
                offered = await asyncio.to_thread(read_allocatable, data, origin, self._selection)
                await self._report.on_allocatable(self._path, offered)
            self._warned.pop(method, None)
        except KubeletError as error:
            self._warn(method, error)

    async def _poll_preparation(self) -> None:
        """Poll unprepared pods; if one is prepared, a List returns all claims at one time."""
        try:
            kubelet = self._connect()
            for namespace, pod in self._preparation_polls.next_pods(_MAX_POLLED):
                data = await kubelet.get(encode_get_request(namespace, pod))
                if data is not None and is_prepared(data, f"{self._path} Get"):
                    self._schedule.request_soon()
            self._warned.pop("Get", None)
        except KubeletError as error:
            if error.result in ("unreachable", "rejected"):
                await self._on_failure(error)
                return
            if error.result == "timeout":
                await self._disconnect()
            self._warn("Get", error)
        self._preparation_polls.record_unprepared(self._now())

    def _warn(self, method: str, error: KubeletError) -> None:
        """Log an error of another method than List, once.

        The source is not lost: List succeeded, and earlier responses of the method stay in use.
        """
        if self._warned.get(method) != error.dedup_key:
            self._ctx.log.warning("%s", error)
        self._warned[method] = error.dedup_key

    async def _on_failure(self, error: KubeletError) -> None:
        self._preparation_polls.record_list((), self._now())
        if error.result in ("unreachable", "timeout"):
            await self._disconnect()
        if self._schedule.record_failure(self._now(), error.result):
            await self._report.on_failure(self._path, error)

    def _connect(self) -> Kubelet:
        if isinstance(self._socket_id, str):
            raise KubeletError("unreachable", self._socket_id)
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


def _lost_holders(now: tuple[Claim, ...], before: tuple[Claim, ...]) -> bool:
    """Return whether a container that held a device before holds none now."""
    return not {claim.subject for claim in before} <= {claim.subject for claim in now}
