"""Base class of the sinks that write to the API server: session, retries, stopping, counting."""

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
"""Seconds for a retry in `__aenter__`. A stop of podgpu has to wait for it."""


class Work(NamedTuple):
    """Requests to the API server for one object.

    Attributes:
        run: sends the requests.
        warning: beginning of the message if the requests fail while the sink has to stop.
    """

    run: Callable[[], Awaitable[None]]
    warning: str


class ApiSink(ABC):
    """A sink that writes one object of the API server at a time.

    After a failure, the runtime enters the sink again. `__aenter__` then repeats the failed work
    before the sink is up. If the work fails again for the same reason, the error has the text of
    the first failure, even if the work is about another object. So the failure is logged once.

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
        """Determine from the newest snapshot what has to be written."""

    @abstractmethod
    def _next_work(self) -> Work | None:
        """Return the requests that are due now; None if none are."""

    @abstractmethod
    def _idle_seconds(self, latest: Snapshot | None) -> float | None:
        """Return the seconds until requests are due without a new snapshot; None for never."""

    def _retry_work(self) -> Work | None:
        """Return the requests to repeat after a failure, before the sink is up; None for none."""
        return self._next_work()

    async def _end(self) -> None:  # noqa: B027 -- most sinks have nothing left to do
        """Write what is left to write when the sink stops."""

    async def __aenter__(self) -> Self:
        """Open the session with the API server; after a failure, repeat the requests first.

        Raises:
            TransientError: there are no credentials, or the requests fail again.
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
        """Close the session. Written objects stay as they are."""
        await self._session.aclose()

    async def run(self, inbox: SinkInbox) -> None:
        """Write what is due until the inbox ends.

        Raises:
            TransientError: the API server refused a request, could not be reached, or is not an API
                server. A failure after the sink has to stop is only logged.
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
        """Run work; after the sink has to stop, only for a limited time."""
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
        """Run work, and remember its failure. Of equal failures in a row, remember the first."""
        try:
            await work.run()
        except TransientError as error:
            if self._failed is None or _kind(self._failed) != _kind(error):
                self._failed = error
            raise
        self._failed = None


async def counted(meter: Meter, method: str, request: Awaitable[bytes]) -> bytes:
    """Await a request and count it by method and result; return the response's body."""
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
    """Return the text of an error. An error without a text means that there was no response."""
    return str(error) or "no response in time"


def _kind(error: TransientError) -> tuple[int, str]:
    """Return a key that is equal for two errors with the same cause."""
    return error.dedup_key if isinstance(error, ApiError) else (0, type(error).__name__)
