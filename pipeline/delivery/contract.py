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
    """Bytes that hold one or more points, and that are sent, stored or lost as a unit.

    Attributes:
        data: the bytes, not empty. The concatenated data of several records of one signal is also
            a valid message, so that records can be combined without decoding them.
        points: number of points in it, at least 1.
        created_ns: when it was made, by the wall clock, nanoseconds since the Unix epoch.
        signal: the kind of message, below `SIGNALS`. A message never contains records of two
            signals. 0 is the sink's main signal.
    """

    data: bytes
    points: int
    created_ns: int
    signal: int = 0


@dataclass(frozen=True, slots=True)
class Acked:
    """The receiver accepted the records, except perhaps some of their points.

    Attributes:
        rejected: points that it refused permanently, although it accepted the others.
        message: the receiver's explanation of that, or another warning of it; may be empty.
    """

    rejected: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The receiver refused all of it permanently; sending it again would change nothing.

    Attributes:
        reason: value for a label, such as `http_400` or `unauthenticated`.
        message: for users: what happened, where, and how to fix it.
        already_logged: the user has been informed; the points are only counted.
    """

    reason: str
    message: str
    already_logged: bool = False


@dataclass(frozen=True, slots=True)
class Retry:
    """Nothing was accepted, as far as is known; it is sent again.

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
    """The message is too large for the receiver. It is split; a single record can't be split.

    Attributes:
        message: for users.
    """

    message: str


Outcome: TypeAlias = Acked | Rejected | Retry | TooLarge


class PushSink(AbstractAsyncContextManager[object], Protocol):
    """Encodes snapshots as records, and sends records.

    It does not retry and does not store what it could not send: `QueuedSink` wraps it and does
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
        appended: points that were put into the queue.
        acked: points that the receiver accepted.
        rejected: points that the receiver refused permanently, by reason.
        dropped: points that podgpu gave up, by reason. The reasons `queue_full`, `stopped` and
            `not_finite` of the same metric are not in here: they count data that never became a
            point.
    """

    appended: int = 0
    acked: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)

    @property
    def queued(self) -> int:
        """Points that wait, including those in flight."""
        return self.appended - self.acked - sum(self.rejected.values()) - sum(self.dropped.values())


@dataclass(frozen=True, slots=True)
class QueueState:
    """State of a queue.

    Attributes:
        totals: counts of all points; `totals.queued` of them wait.
        recovered: points that were in the folder when it was opened, which may happen later than
            the start. Points of these that were lost since are counted here, and as dropped.
        bytes: space used, on disk or in memory.
        oldest_ns: when the oldest waiting record was made, by the wall clock; None if none waits.
        writable: False while the disk can't be written and data is kept in memory.
        faults: number of failures by (operation, reason), such as `("fsync", "io_error")`, since
            the queue was made. Dropped points are not counted here.
        notes: messages for users since the previous call of `state`, one sentence each.
        warnings: the same, about lost points; these may be reported with a delay.
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
