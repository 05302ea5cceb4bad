"""Interfaces of delivery: records, outcomes of sending, and the state of queues."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from pipeline.model import Snapshot

SIGNALS: Final = 4
"""How many signals a sink may have. A queue's folder stores the signal in two bits."""

SHUTDOWN: Final = "shutdown"
"""Reason of drops: points that were only in memory when podgpu had to stop."""


@dataclass(frozen=True, slots=True)
class Record:
    """Bytes that contain one or more points, and that are sent, stored or lost together.

    Attributes:
        data: the bytes, not empty. The concatenated data of several records of one signal is also
            a valid message, so that records can be combined without decoding them.
        points: number of points in the record, at least 1.
        created_ns: when the record was made, by the wall clock, in nanoseconds since 1970.
        signal: the kind of message that the record belongs to, below `SIGNALS`. A message never
            contains records of two signals. 0 is the sink's main signal.
    """

    data: bytes
    points: int
    created_ns: int
    signal: int = 0


@dataclass(frozen=True, slots=True)
class Acked:
    """The receiver accepted the message, except perhaps some of its points.

    Attributes:
        rejected: number of points that the receiver refused permanently.
        message: why the receiver refused points, or another warning of the receiver; may be empty.
    """

    rejected: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The receiver refused the message permanently; sending it again would change nothing.

    Attributes:
        reason: value for a label, such as `http_400` or `unauthenticated`.
        message: for users: what happened, where, and how to fix it.
        already_logged: whether the user was informed before; then the points are only counted.
    """

    reason: str
    message: str
    already_logged: bool = False


@dataclass(frozen=True, slots=True)
class Retry:
    """As far as is known, the receiver did not accept the message; podgpu sends it again.

    Attributes:
        reason: value for a label, such as `unavailable`.
        message: for users: what happened, where, and how to fix it.
        after: minimum seconds to wait, as the receiver requests; None if it requests nothing.
        accepted: how many records, counted from the first, were accepted nevertheless. These are
            not sent again.
    """

    reason: str
    message: str
    after: float | None = None
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class TooLarge:
    """The message is too large for the receiver. It is split, or rejected if it is one record.

    Attributes:
        message: for users: what happened, where, and how to fix it.
    """

    message: str


Outcome: TypeAlias = Acked | Rejected | Retry | TooLarge


class PushSink(AbstractAsyncContextManager[object], Protocol):
    """Encodes snapshots as records, and sends records, to one receiver.

    A push sink neither retries nor stores what it could not send: `QueuedSink` wraps it and does
    both. `send` returns outcomes; an exception that it raises is a bug.

    Entering its context acquires what sending needs. It raises `PermanentError` if that is not
    possible with this configuration, `TransientError` if it is not possible now. Leaving the
    context releases everything, in bounded time.
    """

    def encode(self, snapshot: Snapshot) -> Iterable[Record]:
        """Return the records of a snapshot, oldest first; there may be none.

        Called for every snapshot in order, in the event loop: it must not block. It is also called
        before `__aenter__` has succeeded; data then waits in the queue.
        """
        ...

    async def send(self, records: Sequence[Record]) -> Outcome:
        """Send records of one signal as one message, in their order.

        Must end in bounded time, by its own timeout. Later messages wait for this one: a sink with
        several signals must make sure that no other signal blocks signal 0 for long.
        """
        ...


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts of all points that were ever put into a queue. A queue on disk stores them.

    `appended == acked + sum(rejected) + sum(dropped) + queued` is always true.

    Attributes:
        appended: number of points that were put into the queue.
        acked: number of points that the receiver accepted.
        rejected: number of points that the receiver refused permanently, by reason.
        dropped: number of points that podgpu gave up, by reason. The reasons `queue_full`,
            `stopped` and `not_finite` of the metric of dropped points are not in here: they count
            data that never became a point.
    """

    appended: int = 0
    acked: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)

    @property
    def queued(self) -> int:
        """Number of points that wait, including those in flight."""
        return self.appended - self.acked - sum(self.rejected.values()) - sum(self.dropped.values())


@dataclass(frozen=True, slots=True)
class QueueState:
    """State of a queue.

    Attributes:
        totals: counts of all points; `totals.queued` of them wait.
        recovered: number of points that were in the folder when it was opened, which may happen
            later than the start. Those that were lost since are counted here, and as dropped.
        bytes: space used, on disk or in memory.
        oldest_ns: when the oldest waiting record was made, by the wall clock; None if none waits.
        writable: False while the folder can't be written, and records are kept in memory.
        faults: number of failures by (operation, reason), such as `("fsync", "io_error")`, since
            the queue was created. Dropped points are not counted here.
        notes: messages for users since the previous call of `state`, one sentence each.
        warnings: such messages about lost points; a warning may come later than the loss.
        previous: the part of `totals` that earlier processes counted, without the points that
            were waiting.
    """

    totals: Totals
    recovered: int
    bytes: int
    oldest_ns: int | None
    writable: bool = True
    faults: Mapping[tuple[str, str], int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    previous: Totals = field(default_factory=Totals)
