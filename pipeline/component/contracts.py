"""Protocols of sources and sinks, and of what the runtime provides to them."""

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
from pipeline.model.ledger_usage import HourTotal, UsageWindow


class KubeApi(Protocol):
    """A session with an API server, shared by all components with the same credentials."""

    async def get(self, path: str, query: Mapping[str, str]) -> bytes:
        """Send a GET request and return the response's body, JSON.

        Args:
            path: path of the resource, such as `/api/v1/pods`.
            query: parameters, not yet escaped.

        Raises:
            ApiError: the server refused the request or could not be reached.
        """

    async def patch(self, path: str, changes: Mapping[str, object]) -> bytes:
        """Merge changes into an object and return the whole changed object, JSON.

        Args:
            path: path of the object, such as `/api/v1/nodes/NAME`.
            changes: a JSON merge patch (RFC 7386): None removes a key. If it contains the object's
                `metadata.resourceVersion`, the server responds 409 if the object has changed since
                that version.

        Raises:
            ApiError: the server refused the request or could not be reached. The change may have
                been made nevertheless, if the response was lost.
        """

    async def create(self, path: str, body: Mapping[str, object]) -> bytes:
        """Create an object and return it as the server stored it, JSON.

        Args:
            path: path of the collection.
            body: the object.

        Raises:
            ApiError: the server refused the request or could not be reached. The object may have
                been created nevertheless, if the response was lost.
        """

    def watch(
        self, path: str, query: Mapping[str, str], *, silence: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a stream of lines, each a JSON document. It ends when the server closes it.

        Args:
            path: path of the resource.
            query: parameters; the caller sets `watch=true`.
            silence: seconds without data after which the connection is closed with an error.

        Raises:
            ApiError: on entry, the server refused the request or could not be reached; in the
                iteration, the connection broke or was silent for too long.
        """


class ComponentContext(Protocol):
    """What the runtime provides to a component. The runtime creates and releases all of it.

    Attributes:
        name: the component's name in the configuration.
        node: the node's name in the cluster.
        clock: the source of all times.
        plan: the fields to read and to export.
        log: a logger named after the component.
        meter: records podgpu's own metrics, with the label `source` or `sink`.
        restart_state: state that is kept when the component restarts or a reload changes its
            options; dropped when the component is removed or gets another kind.
    """

    name: str
    node: str
    clock: Clock
    plan: FieldPlan
    log: logging.Logger
    meter: Meter
    restart_state: dict[str, object]

    def kube(self, kubeconfig: Path | None) -> AbstractAsyncContextManager[KubeApi]:
        """Return a shared session with an API server, which is opened on first use.

        Args:
            kubeconfig: file with address and credentials; None for the service account of podgpu's
                pod.

        Raises:
            TransientError: there are no credentials now; the text names the places searched.
        """


class SourceContext(ComponentContext, Protocol):
    """What the runtime provides to a source.

    Attributes:
        accepted: scheduler annotations that other sources accepted, and the GPUs of the node.
    """

    accepted: AcceptedAnnotations

    async def emit(self, event: Event) -> None:
        """Send an event to the join under this source's name; wait while the inbox is full."""

    async def relay(self, envelope: Envelope) -> None:
        """Send another source's event to the join, under that source's name and kind.

        Only `replay` uses this. If a source of that name runs here, the name gets a suffix.
        """

    def hints(self) -> AsyncIterator[Hint]:
        """Iterate over the join's hints. Hints that wait to be taken are merged into one."""


class Source(Protocol):
    """A component that observes the node and emits events.

    After an error the runtime calls `run` of the same object again, so that its counters continue.
    """

    async def run(self, ctx: SourceContext) -> None:
        """Acquire resources, then observe and emit until cancelled. Return if no more data comes.

        All resources must be released when `run` ends.

        Raises:
            TransientError: it does not work now; the runtime calls `run` again later.
            PermanentError: the configuration cannot work. If podgpu has just started, it exits;
                otherwise the runtime calls `run` again later.
        """


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request to a mounted path. Header names are lower case.

    Attributes:
        body: the request's body; empty if the mount reads no body.
        repeated: names of query parameters that occur more than once; `query` has one value of
            each.
        source: the client's IPv4 address, or the /64 network of its IPv6 address.
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
    """A complete response.

    Attributes:
        body: may be the same object for many clients, so that many slow clients share the memory
            of one page.
        tail: bytes after the body, for this client only.
    """

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    tail: bytes = b""


HttpHandler: TypeAlias = Callable[[HttpRequest], Awaitable[HttpResponse]]

Refusal: TypeAlias = Literal["too_long", "encoded", "busy", "unfinished"]
"""Why a request's body is refused: it is too long; it has a content encoding; podgpu holds too many
bodies; it did not arrive completely."""

READ_ONLY: Final = ("GET", "HEAD")
"""The methods of a read-only path."""


class HttpMounts(Protocol):
    """The paths that one component serves on a shared listener."""

    @property
    def port(self) -> int:
        """The port of the listener; for port 0, the port that the system chose."""

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
        """Serve a path until the component's use of the listener ends.

        Args:
            path: starts with `/`.
            handler: returns the response.
            title: the page's title in the index at `/`; empty: not in the index.
            methods: the allowed methods; others get status 405.
            body_bytes: maximum length of a request's body; a longer one gets status 413. 0 for a
                path that reads no body.
            refused: called instead of the handler for each request that is refused because of its
                body.
        """


class SinkContext(ComponentContext, Protocol):
    """What the runtime provides to a sink."""

    def latest(self) -> Snapshot | None:
        """Return the newest snapshot, or None before the first."""

    def telemetry(self) -> list[FamilyPoints]:
        """Return the current values of podgpu's own metrics, in a fixed order."""

    def http(self, address: ListenAddress) -> AbstractAsyncContextManager[HttpMounts]:
        """Return a shared HTTP listener, which is opened on first use.

        Raises:
            PermanentError: podgpu cannot listen on the address.
        """


class SinkInbox(Protocol):
    """The queue of snapshots for one sink; iteration ends when the sink has to stop."""

    def __aiter__(self) -> AsyncIterator[Snapshot]:
        """Iterate over snapshots, oldest first."""

    async def wait_closed(self) -> None:
        """Wait until the inbox is closed for new snapshots; some may still be queued."""


class Sink(Protocol):
    """A component that receives snapshots and passes them on.

    `async with` acquires resources and releases them. After an error of `run`, the runtime exits
    the sink, and enters it again later.
    """

    async def __aenter__(self) -> Self:
        """Acquire resources.

        Raises:
            PermanentError: the configuration cannot work. podgpu does not start, or continues with
                the previous configuration after a reload.
            TransientError: it does not work now; the runtime enters the sink again later.
        """

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Release all resources, in bounded time."""

    async def run(self, inbox: SinkInbox) -> None:
        """Process snapshots until the inbox ends, flush, and return."""


@runtime_checkable
class UsageHistory(Protocol):
    """A sink that stores usage and can read it.

    The runtime may also call these methods while the sink is not entered.
    """

    async def stored_usage(self) -> TotalsRestored | None:
        """Return the usage accounts of podgpu's previous run; None if there are none.

        Called at most once, before the first source starts. Takes bounded time.

        Raises:
            TransientError: the accounts cannot be read now. Usage counters start at zero, unless
                another sink has the accounts.
        """

    async def window(self, start_ns: int, end_ns: int) -> UsageWindow:
        """Return the usage within a time range.

        Args:
            start_ns: start of the range, in nanoseconds of Unix time.
            end_ns: end of the range, in nanoseconds of Unix time.

        Raises:
            TransientError: the usage cannot be read now.
        """

    async def hours(self, start_ns: int, end_ns: int) -> tuple[HourTotal, ...]:
        """Return the total usage of each hour within a time range, the oldest first.

        Args:
            start_ns: start of the range, in nanoseconds of Unix time.
            end_ns: end of the range, in nanoseconds of Unix time.

        Raises:
            TransientError: the usage cannot be read now.
        """


class Delivery(Enum):
    """How a sink receives snapshots."""

    LATEST = "latest"
    """For sinks that show the current state: a newer snapshot replaces one in the queue."""

    QUEUE = "queue"
    """For sinks that record history: a bounded queue. When it is full, its oldest snapshot is
    dropped, and the readings of that snapshot are counted."""
