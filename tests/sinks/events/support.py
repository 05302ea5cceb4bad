"""An events sink, XID errors for it, and a fake API server that accepts Events; on virtual time."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from config.value_types import Duration
from pipeline.base.channels import Channel
from pipeline.base.errors import ApiError
from pipeline.kube.api_errors import response_error
from pipeline.kube.api_request import ApiRequest
from pipeline.model import Instant, Layout, Snapshot, XidError, XidVictim
from sinks.events.options import Options
from sinks.events.sink import EventsSink
from tests.support.contexts import LoopClock
from tests.support.kube import Raw
from tests.support.nodes import START, uuid_of
from tests.support.objects import FakeObjects
from tests.support.sinks import FakeSinkContext, supervised
from tests.support.usage import victim, xid_error

GPU = uuid_of(0)
ERRORS, REQUESTS = "podgpu_sink_errors_total", "podgpu_sink_requests_total"


class FakeEvents(FakeObjects):
    """A fake API server that also accepts Events.

    Attributes:
        losing: how many of the next Events are created but their responses lost.
        faults: the error for Events on a pod, by pod name.
        delays: seconds until the response to a new Event on a pod, by pod name.
    """

    def __init__(self) -> None:
        super().__init__()
        self.losing = 0
        self.faults: dict[str, ApiError] = {}
        self.delays: dict[str, float] = {}

    async def create(self, path: str, body: Mapping[str, object]) -> bytes:
        created: Raw = json.loads(json.dumps(body))
        await self._record("POST", path, created)
        place = f"{path}/{created['metadata']['name']}"
        pod = created["involvedObject"]["name"]
        await asyncio.sleep(self.delays.get(pod, 0))
        if fault := self.faults.get(pod):
            raise fault
        if place in self.objects:
            raise ApiError(f"{place}: 409 AlreadyExists", status=409, reason="AlreadyExists")
        self.put(place, created)
        if self.losing:
            self.losing -= 1
            raise ApiError("connection lost")
        return json.dumps(created).encode()


def refused(status: int, message: str = "no", reason: str = "Refused") -> ApiError:
    """Return the error of a server that refuses an Event."""
    body = json.dumps({"kind": "Status", "reason": reason, "message": message}).encode()
    request = ApiRequest("POST", "/api/v1/namespaces/ml/events", changes={})
    return response_error("api", request, status=status, headers={}, body=body, credentials="")


class Bench:
    """A node with XID errors, an events sink and its API server."""

    def __init__(self, **options: Any) -> None:
        self.api = FakeEvents()
        self.ctx = FakeSinkContext("events", clock=LoopClock(START.wall_ns))
        self.ctx.api = self.api
        self.inbox: Channel[Snapshot] = Channel(1)
        self.errors: list[XidError] = []
        self.sink = self.new_sink(**options)

    def new_sink(self, **options: Any) -> EventsSink:
        """Return a sink with these options, as after a reload."""
        for name in ("repeat", "wait"):
            if name in options:
                options[name] = Duration.parse(options[name])
        return EventsSink(Options(**options), self.ctx)

    @asynccontextmanager
    async def running(self, sink: EventsSink | None = None) -> AsyncIterator["Bench"]:
        """Run the sink under the daemon's supervisor until it has stopped."""
        self.inbox = Channel(1)
        async with supervised(sink or self.sink, self.ctx, self.inbox):
            yield self

    # -- inputs

    def add_error(self, *victims: XidVictim, code: int = 31, **more: Any) -> XidError:
        """Add an error that happens now; without victims it affects pod `a`."""
        error = xid_error(
            GPU,
            code,
            *(victims or (victim("a", GPU, uid="uid-a"),)),
            serial=self.errors[-1].serial + 1 if self.errors else 1,
            when=self.ctx.clock.now(),
            **more,
        )
        self.errors.append(error)
        self.show()
        return error

    def update_error(self, error: XidError, **more: Any) -> None:
        """Add what becomes known about an error later."""
        place = self.errors.index(error)
        self.errors[place] = replace(error, revision=error.revision + 1, **more)
        self.show()

    def show(self) -> None:
        at: Instant = self.ctx.clock.now()
        self.ctx.snapshot = Snapshot(at, Layout((), {}), (), (), xids=tuple(self.errors))
        self.inbox.offer(self.ctx.snapshot)

    # -- results

    def events(self) -> list[Raw]:
        return list(self.api.objects.values())

    def event(self) -> Raw:
        [found] = self.events()
        return found

    def requests(self) -> list[tuple[float, str]]:
        return [(round(at, 3), method) for at, method, _, _ in self.api.requests]

    def lost(self, reason: str) -> float:
        return self.ctx.counted(ERRORS)[f"event {reason}"]


async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


__all__ = ["GPU", "Bench", "refused", "sleep", "victim", "xid_error"]
