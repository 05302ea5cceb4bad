"""What a source and a sink are, and what the runtime hands them."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Protocol, Self, TypeAlias, runtime_checkable

from config.value_types import ListenAddress
from pipeline.base.clock import Clock
from pipeline.base.telemetry import FamilyPoints, Meter
from pipeline.component.accepted_annotations import AcceptedAnnotations
from pipeline.fields import FieldPlan
from pipeline.model import Envelope, Event, Hint, Snapshot, TotalsRestored
from pipeline.model.usage_window import UsageWindow


class KubeApi(Protocol):
    """A session with an API server, shared by all that use the same credentials."""

    async def get(self, path: str, query: Mapping[str, str]) -> bytes:
        """Return the body of an answer, JSON.

        Args:
            path: of the resource, such as `/api/v1/pods`.
            query: parameters, not yet escaped.

        Raises:
            ApiError: the server refused, or couldn't be reached.
        """
        ...

    async def patch(self, path: str, changes: Mapping[str, object]) -> bytes:
        """Merge changes into an object and return the whole of it as it is then, JSON.

        Args:
            path: of the object, such as `/api/v1/nodes/NAME`.
            changes: a JSON merge patch (RFC 7386): None takes a key away. With the object's
                `metadata.resourceVersion` in it, it is refused by 409 where the object has changed
                since that version was read.

        Raises:
            ApiError: the server refused, or couldn't be reached; the change may be made all the
                same, if its answer was lost.
        """
        ...

    async def create(self, path: str, body: Mapping[str, object]) -> bytes:
        """Create an object and return the whole of it as it is then, JSON.

        Args:
            path: of the collection.
            body: the object.

        Raises:
            ApiError: the server refused, or couldn't be reached; the object may be made all the
                same, if its answer was lost.
        """
        ...

    def watch(
        self, path: str, query: Mapping[str, str], *, silence: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a stream of lines, each of them JSON; it ends when the server ends it.

        Args:
            path: of the resource.
            query: parameters; `watch=true` is the caller's to set.
            silence: seconds without a byte after which the connection counts as dead.

        Raises:
            ApiError: on entry, the server refused or couldn't be reached; in the iteration, the
                connection broke or fell silent.
        """
        ...


class SourceContext(Protocol):
    """What a source may use while it runs. Owned by the runtime; members are made when first used.

    Attributes:
        name: the source's name in the configuration.
        node: the node's name, as the cluster knows it.
        clock: the only clock.
        plan: the fields somebody asked for; a sampler reads no others.
        log: named after the source.
        meter: for our own telemetry; adds the label `source`.
        accepted: which annotations of pods count, from those that see the pods' requests.
        restart_state: what the source leaves here is there again after a restart, and after a
            reload that changed its options; it goes when the source leaves the configuration.
    """

    name: str
    node: str
    clock: Clock
    plan: FieldPlan
    log: logging.Logger
    meter: Meter
    accepted: AcceptedAnnotations
    restart_state: dict[str, object]

    async def emit(self, event: Event) -> None:
        """Hand an event to the join under this source's name, waiting while the inbox is full."""
        ...

    async def relay(self, envelope: Envelope) -> None:
        """Hand on another source's event under that source's name and kind.

        For replay alone: precedence would change if it emitted under its own.
        """
        ...

    def hints(self) -> AsyncIterator[Hint]:
        """Iterate over the join's hints; those not yet taken merge into one."""
        ...

    def kube(self, kubeconfig: Path | None) -> AbstractAsyncContextManager[KubeApi]:
        """Join the session with an API server, starting it if need be.

        Args:
            kubeconfig: file with address and credentials; None for those of the pod podgpu runs in.

        Raises:
            TransientError: there are no credentials now; the text says where they were looked for.
        """
        ...


class Source(Protocol):
    """Something that observes the node.

    The same object is run again after a `TransientError`, so that its counters go on.
    """

    async def run(self, ctx: SourceContext) -> None:
        """Acquire, observe and emit until cancelled. Returning means there is no more to come.

        Raises:
            TransientError: run again later; nothing of what was acquired is kept.
            PermanentError: the configuration asks for what can't be had.
        """
        ...


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request to a mounted path. Header names are lower case.

    Attributes:
        body: what was sent behind the headers; empty where the mount takes no body.
        repeated: names of parameters that were given more than once, of which `query` has one.
        source: where the client is: its IPv4 address, or the /64 of its IPv6 address.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""
    repeated: frozenset[str] = frozenset()
    source: str = ""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An answer, whole.

    Attributes:
        body: may be the same object for many clients: hundreds of slow ones then keep one page in
            memory, not one each.
        tail: what comes after the body, for this client alone.
    """

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    tail: bytes = b""


HttpHandler: TypeAlias = Callable[[HttpRequest], Awaitable[HttpResponse]]

Refusal: TypeAlias = Literal["too_long", "encoded", "busy", "unfinished"]
"""Why a body isn't taken: it is longer than it may be, or encoded; there is no room for it; it
didn't come to its end."""

READ_ONLY: Final = ("GET", "HEAD")
"""The methods of a path that shows something."""


class HttpMounts(Protocol):
    """One component's paths on a listener that it shares with others."""

    @property
    def port(self) -> int:
        """The port that is listened on: the one asked for, or the one found for port 0."""
        ...

    def mount(
        self,
        path: str,
        handler: HttpHandler,
        *,
        title: str,
        methods: Sequence[str] = READ_ONLY,
        body_bytes: int = 0,
        refused: Callable[[Refusal], None] = lambda _: None,
    ) -> None:
        """Serve a path until the context ends.

        Args:
            path: begins with `/`.
            handler: answers.
            title: shown on the page at `/`.
            methods: that the path takes; another one is answered 405.
            body_bytes: the longest body that is taken, a longer one is answered 413; 0 for a path
                that looks at none.
            refused: told of each request that the handler isn't asked, for its body.
        """
        ...


class SinkContext(Protocol):
    """What a sink may use. Owned by the runtime; members are made when first used.

    Attributes:
        name: the sink's name in the configuration.
        node: the node's name, for labels.
        clock: the only clock.
        plan: the fields somebody asked for.
        log: named after the sink.
        meter: for our own telemetry; adds the label `sink`.
        restart_state: what the sink leaves here is there again after a reload that changed its
            options; it goes when the sink leaves the configuration.
    """

    name: str
    node: str
    clock: Clock
    plan: FieldPlan
    log: logging.Logger
    meter: Meter
    restart_state: dict[str, object]

    def latest(self) -> Snapshot | None:
        """Return the newest snapshot, None before the first: a reloaded sink answers at once."""
        ...

    def telemetry(self) -> list[FamilyPoints]:
        """Return podgpu's own metrics as they are now, in a fixed order."""
        ...

    def http(self, address: ListenAddress) -> AbstractAsyncContextManager[HttpMounts]:
        """Join the listener at an address, starting it if need be.

        Raises:
            PermanentError: the address can't be listened on.
        """
        ...

    def kube(self, kubeconfig: Path | None) -> AbstractAsyncContextManager[KubeApi]:
        """Join the session with an API server, as `SourceContext.kube` does.

        Raises:
            TransientError: there are no credentials now; the text says where they were looked for.
        """
        ...


class SinkInbox(Protocol):
    """Snapshots on their way to one sink; iteration ends when the sink has to stop."""

    def __aiter__(self) -> AsyncIterator[Snapshot]:
        """Iterate over snapshots, oldest first."""
        ...

    async def wait_closed(self) -> None:
        """Wait until no more snapshots come in, though some may still wait."""
        ...


class Sink(Protocol):
    """Something that hands snapshots on.

    `async with` acquires what it needs and gives it back; after a `TransientError` it is left and
    entered again.
    """

    async def __aenter__(self) -> Self:
        """Acquire.

        Raises:
            PermanentError: what was asked for can't be had; at the first start this ends podgpu.
            TransientError: not now; entered again later.
        """
        ...

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Give everything back. Bounded in time."""
        ...

    async def run(self, inbox: SinkInbox) -> None:
        """Consume until the inbox ends, flush, return."""
        ...


@runtime_checkable
class UsageHistory(Protocol):
    """A sink that keeps the accounts, and so can tell of the past. It is entered when asked."""

    async def stored_usage(self) -> TotalsRestored | None:
        """Return the accounts as they stood when podgpu last ran; None if there are none.

        Asked once after each start, before the first source begins. Bounded in time.

        Raises:
            TransientError: it can't be told now; the accounts begin anew.
        """
        ...

    async def window(self, start_ns: int, end_ns: int) -> UsageWindow:
        """Return what was used in a span of time.

        Args:
            start_ns: in nanoseconds of Unix time.
            end_ns: likewise.

        Raises:
            TransientError: it can't be told now.
        """
        ...


class Delivery(Enum):
    """How snapshots reach a sink."""

    LATEST = "latest"
    """For sinks that show the present: a newer snapshot takes the place of one not yet taken."""

    QUEUE = "queue"
    """For sinks that record history: bounded, drops the oldest and counts its readings."""
