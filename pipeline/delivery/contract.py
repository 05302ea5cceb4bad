"""What is sent, what may become of it, and what a queue is."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Protocol, Self, TypeAlias

from pipeline.delivery.options import QueueOptions
from pipeline.model import Instant, Snapshot

SIGNALS: Final = 4
"""How many signals a sink may have: a number of one takes two bits in a queue's folder."""

SHUTDOWN: Final = "shutdown"
"""Why points are dropped that waited in memory alone when podgpu had to stop."""


@dataclass(frozen=True, slots=True)
class Record:
    """What is sent, kept or lost as one piece.

    Attributes:
        data: the bytes, not empty. Those of several records of one signal, one after the other,
            are a valid message again: so records are put together without looking into them.
        points: how many points stand in it, 1 at least.
        created_ns: when it was made, by the wall clock, nanoseconds since the Unix epoch.
        signal: which of the sink's kinds of message it belongs to, below `SIGNALS`. Records of two
            signals never go out in one message. 0 is what the sink is there for.
    """

    data: bytes
    points: int
    created_ns: int
    signal: int = 0


@dataclass(frozen=True, slots=True)
class Acked:
    """The receiver has taken the records, or all but some of their points.

    Attributes:
        rejected: points that it refused for good, though it took the others.
        message: what it says about that, or a warning of its own; empty without either.
    """

    rejected: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The receiver has refused all of it for good: to send it again would change nothing.

    Attributes:
        reason: a word for a label, such as `http_400` or `unauthenticated`.
        message: for people, with the place and the mend.
        already_logged: people have heard of it already: it is only counted.
    """

    reason: str
    message: str
    already_logged: bool = False


@dataclass(frozen=True, slots=True)
class Retry:
    """Nothing of it was taken, as far as is known; it is sent again.

    Attributes:
        reason: a word for a label, such as `unavailable`.
        message: for people, with the place and the mend.
        after: seconds that the receiver asks to wait at least; None where it says nothing.
        accepted: how many of the records, from the first, were taken all the same: these are not
            sent again.
    """

    reason: str
    message: str
    after: float | None = None
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class TooLarge:
    """The receiver takes no message of this size. Halves may do; a single record never will.

    Attributes:
        message: for people.
    """

    message: str


Outcome: TypeAlias = Acked | Rejected | Retry | TooLarge


class PushSink(Protocol):
    """Something that turns snapshots into records and sends records.

    It neither waits to try again, nor keeps what it could not send: `Delivering` wraps around it
    and does. Results, not exceptions: what `send` raises is a bug.
    """

    async def __aenter__(self) -> Self:
        """Acquire what sending needs.

        Raises:
            PermanentError: it can't be had with this configuration.
            TransientError: not now.
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

    def encode(self, snapshot: Snapshot) -> Iterable[Record]:
        """Return what a snapshot has to say, oldest first; nothing at all is fine.

        Called for every snapshot in turn, in the event loop: it must not block. Also while
        `__aenter__` has not succeeded yet, since data waits in the queue until it does.
        """
        ...

    async def send(self, records: Sequence[Record]) -> Outcome:
        """Send records of one signal as one message, in their order.

        Bounded in time by its own timeout. While a message waits, so do all behind it: a sink that
        has several signals has to see to it that one of them doesn't hold up the first for long.
        """
        ...


@dataclass(frozen=True, slots=True)
class Totals:
    """What became of all points that a queue was ever given; outlives the process with the queue.

    `appended == acked + sum(rejected) + sum(dropped) + queued` holds at every moment.

    Attributes:
        appended: points that were put into it.
        acked: points that the receiver took.
        rejected: points that it refused for good, by reason.
        dropped: points that were given up here, by reason. Not `queue_full`, `stopped` or
            `not_finite`: these stand in the same metric for what never became a point.
    """

    appended: int = 0
    acked: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)

    @property
    def queued(self) -> int:
        """Points that wait, those that are being sent included."""
        return self.appended - self.acked - sum(self.rejected.values()) - sum(self.dropped.values())


@dataclass(frozen=True, slots=True)
class QueueState:
    """How a queue is doing.

    Attributes:
        totals: what became of all points; `totals.queued` of them wait.
        recovered: points that were found in it when it was opened, which may be later than at the
            start: those that were lost in it meanwhile are counted here, and as dropped.
        bytes: space that it takes, on the disk or in memory.
        oldest_ns: when the oldest record that waits was made, by the wall clock; None when none is.
        writable: False while the disk takes nothing and memory has to do.
        faults: how often something went wrong that is not told by a dropped point, by
            (operation, reason), since it was opened: `("fsync", "io_error")`, and so on.
        notes: what happened since the last look that people should hear of, one sentence each.
        warnings: the same, where something was lost, perhaps some looks ago.
        previous: what stands in `totals` and was counted by earlier processes, without what was
            waiting.
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


class Queue(Protocol):
    """Records on their way, oldest first, with one taker. Not thread-safe; may block on a disk."""

    def append(self, records: Sequence[Record]) -> None:
        """Put records at the end. What finds no room costs the oldest, or itself; it is counted.

        Never raises for what a disk does: that is told by `state`.
        """
        ...

    def take(self, most_bytes: int) -> tuple[Record, ...]:
        """Return the oldest records, and keep them until they are settled or released.

        As many as fit into `most_bytes` and are of one signal, but one at least; none at all when
        the queue is empty.
        What was taken before has to be settled or released first.
        """
        ...

    def settle(
        self, count: int, *, acked: int = 0, rejected: Mapping[str, int] | None = None
    ) -> None:
        """Forget the first `count` of the records that were taken; the others stay taken.

        Args:
            count: how many records.
            acked: points of them that the receiver took.
            rejected: points of them that it refused for good, by reason. Both together are the
                points of these records.
        """
        ...

    def release(self) -> None:
        """Put back what was taken and isn't settled: the next `take` returns it again."""
        ...

    def maintain(self, now_ns: int) -> None:
        """Do what has to be done from time to time: flush to the disk, try a disk that failed.

        Args:
            now_ns: the monotonic clock.
        """
        ...

    def state(self) -> QueueState:
        """Return how it is doing."""
        ...

    def close(self) -> None:
        """Flush and give back. What was taken is put back.

        Memory that no disk took is dropped, by the reason `SHUTDOWN`. `state` can be asked after.
        """
        ...


OpenQueue: TypeAlias = Callable[[QueueOptions, str, Callable[[], Instant]], Queue]
"""Opens a queue for records of a kind, by a word; it asks for the time by itself, in whatever
thread, and blocks on a disk.

Raises `PermanentError` if another podgpu has the folder, records of another kind are in it, or it
can't be a queue's; `TransientError` while this same process has it. A disk that takes nothing is no
reason to raise: memory has to do then.
"""
