"""Records of the disk that are in flight."""

from collections import Counter, deque
from dataclasses import dataclass
from itertools import islice

from pipeline.delivery.queue.disk.record_reader import Place


@dataclass(slots=True)
class Taken:
    """A record in flight.

    Attributes:
        place: where it stands.
        points: how many stand in it.
        made_ns: when it was made.
        lost: why its segment is gone; empty while it is there.
    """

    place: Place
    points: int
    made_ns: int
    lost: str = ""


class Flight:
    """All that are in flight, oldest first. Those whose segments are gone come first."""

    def __init__(self) -> None:
        self._taken: deque[Taken] = deque()

    def __len__(self) -> int:
        return len(self._taken)

    @property
    def oldest_ns(self) -> int | None:
        """When the first was made."""
        return self._taken[0].made_ns if self._taken else None

    @property
    def place(self) -> Place | None:
        """Where the first stands that is still on the disk."""
        return next((taken.place for taken in self._taken if not taken.lost), None)

    @property
    def lost(self) -> Counter[str]:
        """Points of those that are no longer on the disk, by what became of them there."""
        found: Counter[str] = Counter()
        for taken in self._taken:
            if not taken.lost:
                break
            found[taken.lost] += taken.points
        return found

    def put(self, taken: Taken) -> None:
        """Add one."""
        self._taken.append(taken)

    def points(self, count: int) -> int:
        """Return how many points stand in the first of them."""
        return sum(taken.points for taken in islice(self._taken, count))

    def forget(self, count: int) -> None:
        """Forget the first of them."""
        for _ in range(count):
            self._taken.popleft()

    def clear(self) -> None:
        """Forget all of them."""
        self._taken.clear()

    def lose(self, segment: int | None, reason: str) -> None:
        """Note that a segment is gone, or all of them.

        One in flight behind others that are still on the disk isn't noted: were these put back, it
        would be missed, and counted, when its place is come to again.
        """
        for taken in self._taken:
            if not taken.lost:
                if segment is not None and taken.place.segment != segment:
                    break
                taken.lost = reason
