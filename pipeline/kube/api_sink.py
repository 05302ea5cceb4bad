"""Base of the sinks that write to the API server: session, main loop, retry, stop and counting."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, NamedTuple, Self

from pipeline.base.errors import ApiError, TransientError
from pipeline.base.telemetry import Meter
from pipeline.component.contracts import KubeApi, SinkContext, SinkInbox
from pipeline.component.shutdown import run_until_stopped
from pipeline.component.snapshot_waiter import Arrivals
from pipeline.component.warnings import warn
from pipeline.model import Snapshot

_RETRY_SECONDS: Final = 8.0
"""Seconds that a retry may take before the sink is up, during which a stop has to wait."""


class Work(NamedTuple):
    """Requests to the API server for one object.

    Attributes:
        run: sends the requests.
        warning: logged with the reason, if they fail while the sink has to stop.
    """

    run: Callable[[], Awaitable[None]]
    warning: str


class ApiSink(ABC):
    """A sink that writes one object of the API server at a time.

    It is used again after an error. Then it retries before it is up, and reports the same failure
    with the same text, although the retry may be about another object: so it is logged once.

    Args:
        kubeconfig: file with address and credentials; None for the pod's service account.
        ctx: context of the sink.
    """

    _api: KubeApi

    def __init__(self, kubeconfig: Path | None, ctx: SinkContext) -> None:
        self._kubeconfig = kubeconfig
        self._ctx = ctx
        self._session = AsyncExitStack()
        self._failed: TransientError | None = None
        self._closing: asyncio.Future[None] | None = None

    @abstractmethod
    def _take(self, snapshot: Snapshot | None) -> None:
        """Determine from the newest snapshot what is to be written."""

    @abstractmethod
    def _next_work(self) -> Work | None:
        """Return what is due now; None if nothing is."""

    @abstractmethod
    def _idle_seconds(self, latest: Snapshot | None) -> float | None:
        """Return the seconds until something is due without a new snapshot; None for never."""

    def _retry_work(self) -> Work | None:
        """Return what is retried after a failure, before the sink is up."""
        return self._next_work()

    async def _end(self) -> None:  # noqa: B027 -- most sinks have nothing left to do
        """Do what is left to do when the sink stops."""

    async def __aenter__(self) -> Self:
        """Open the session with the API server; after a failure, retry first.

        Raises:
            TransientError: there are no credentials, or the failure continues.
        """
        self._closing = None
        self._api = await self._session.enter_async_context(self._ctx.kube(self._kubeconfig))
        try:
            if self._failed is not None:
                await self._retry()
        except BaseException:
            await self._session.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the session. What was written stays."""
        await self._session.aclose()

    async def run(self, inbox: SinkInbox) -> None:
        """Write what is due until the inbox ends.

        Raises:
            TransientError: the API server refused, could not be reached, or is not an API server.
        """
        async with Arrivals(inbox, self._ctx.latest()) as arrivals:
            closing = self._closing = arrivals.closing
            while not arrivals.ended:
                self._take(arrivals.latest)
                if not closing.done() and (work := self._next_work()) is not None:
                    await self._run_until_stopped(work, closing)
                await arrivals.wait(None if closing.done() else self._idle_seconds(arrivals.latest))
        await self._end()

    def _is_stopping(self) -> bool:
        """Whether no new request may begin."""
        return self._closing is not None and self._closing.done()

    async def _run_until_stopped(self, work: Work, closing: asyncio.Future[None]) -> None:
        """Run work; after a stop request only within the time for stopping."""
        task = await run_until_stopped(self._attempt(work), closing)
        try:
            task.result()
        except (TransientError, asyncio.CancelledError) as error:
            if not closing.done():
                raise
            warn(self._ctx, "%s: %s", work.warning, failure_text(error))

    async def _retry(self) -> None:
        self._take(self._ctx.latest())
        work = self._retry_work()
        if work is None:
            self._failed = None
            return
        try:
            async with asyncio.timeout(_RETRY_SECONDS):
                await self._attempt(work)
        except TimeoutError:
            raise TransientError(str(self._failed)) from None
        except TransientError as error:
            if error is self._failed:
                raise
            raise TransientError(str(self._failed), retry_after=error.retry_after) from error

    async def _attempt(self, work: Work) -> None:
        """Run work, and remember its failure. Of failures of one kind in a row the first counts."""
        try:
            await work.run()
        except TransientError as error:
            if self._failed is None or _kind(self._failed) != _kind(error):
                self._failed = error
            raise
        self._failed = None


async def counted(meter: Meter, method: str, request: Awaitable[bytes]) -> bytes:
    """Return the response to a request, which is counted by method and result."""
    result = "error"
    try:
        body = await request
        result = "ok"
    except ApiError as error:
        result = str(error.status) if error.status else "error"
        raise
    finally:
        meter.add("podgpu_sink_requests_total", method=method, result=result)
    return body


def failure_text(error: BaseException) -> str:
    """Return the text of an error, or that there was no response."""
    return str(error) or "no response in time"


def _kind(error: TransientError) -> tuple[int, str]:
    """Return a key that is equal for two errors with the same cause."""
    return error.dedup_key if isinstance(error, ApiError) else (0, type(error).__name__)
