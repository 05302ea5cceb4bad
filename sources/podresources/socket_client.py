"""Client of one socket: sends requests, and reconnects when the socket is replaced."""

import asyncio
from pathlib import Path

from pipeline.component.contracts import SourceContext
from pipeline.files.file_watch import Watcher
from pipeline.model import NS, Claim
from pipeline.model.plugin_ids import reuse_unchanged
from sources.podresources.claim_report import KubeletReport
from sources.podresources.completeness import ListCompleteness
from sources.podresources.kubelet_connection import (
    Kubelet,
    KubeletError,
    Result,
    SocketId,
    find_socket,
)
from sources.podresources.options import Options
from sources.podresources.request_pace import RequestSchedule
from sources.podresources.responses import (
    ListedClaims,
    Selection,
    read_allocatable,
    read_list,
)

# A kubelet that has just started responds for about a second before it knows its pods.
_WARM_UP_NS = 10 * NS

# Minimum time between two steps, however often the client is woken.
_REST_NS = NS // 50


class SocketClient:
    """Client of one socket of the source.

    Args:
        path: path of the socket.
        options: the source's options.
        selection: which resources and drivers are GPUs.
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
        self._completeness = ListCompleteness(options.max_age.ns)
        self._socket_id: SocketId | None = None
        self._kubelet: Kubelet | None = None
        self._claims: tuple[Claim, ...] = ()
        self._warm_ns = 0
        self._warned: tuple[str, str] | None = None
        self._allocatable_requested = False

    def request_soon(self) -> None:
        """Send a request soon, because something may have changed. Wakes `run`."""
        self._schedule.request_soon()
        self._watcher.wake()

    async def run(self) -> None:
        """Query the kubelet until cancelled."""
        with self._watcher as watcher:
            try:
                while True:
                    started = self._now()
                    await self._step(watcher)
                    expires_ns, next_ns = (
                        self._report.expires_ns(self._path),
                        self._schedule.next_ns,
                    )
                    next_ns = next_ns if expires_ns is None else min(next_ns, expires_ns)
                    wait = max(next_ns - self._now(), 0) / NS
                    await watcher.wait(wait)
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
        await self._report.expire()

    async def _reset(self, socket_id: SocketId) -> None:
        """Close the connection, and forget failures: another socket, or none, is at the path."""
        now, age_ns = self._ctx.clock.now(), 0
        if self._socket_id is not None:
            self._warm_ns = now.mono_ns + _WARM_UP_NS
        elif not isinstance(socket_id, str):
            # The socket is older than podgpu, so only the file shows its age.
            age_ns = now.wall_ns - socket_id[2]
        self._socket_id = socket_id
        self._completeness.socket_changed(now.mono_ns, age_ns)
        self._report.socket_changed(self._path)
        self._schedule.reset()
        await self._disconnect()

    def _find_socket(self) -> SocketId:
        """Watch the path, and return which socket is there. Blocking."""
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
        lost = {one.subject for one in self._claims} - {one.subject for one in held.claims}
        if lost and now < self._warm_ns:
            self._schedule.retry_soon(now)
            return
        self._schedule.record_response(held.unprepared)
        self._claims = held.claims
        complete = self._completeness.record_list(
            self._now(), (claim.subject for claim in held.claims)
        )
        # Before the first claims: the join then knows which devices a plugin manages.
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
        self._allocatable_requested = True
        try:
            data = await kubelet.allocatable()
            if data is not None:
                origin = f"{self._path} GetAllocatableResources"
                offered = await asyncio.to_thread(read_allocatable, data, origin, self._selection)
                await self._report.on_allocatable(self._path, offered)
            self._warned = None
        except KubeletError as error:
            # The source is not lost: List succeeded, and the earlier response stays in use.
            if self._warned != error.dedup_key:
                self._ctx.log.warning("%s", error)
            self._warned = error.dedup_key

    async def _on_failure(self, error: KubeletError) -> None:
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
