"""From the API server's timestamps to moments on both clocks."""

from datetime import UTC, datetime, timedelta

from pipeline.kube.shape import text
from pipeline.model import Instant

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_REMEMBERED = 4096


class Moments:
    """Makes equal moments of equal timestamps, for as long as it lives.

    A timestamp tells of the wall clock alone. Its place on the monotonic clock is worked out from
    one moment for all; from a newer one each time, the same timestamp would move with every step of
    the wall clock, and a pod that stayed the same would look changed.

    Args:
        base: any moment.
    """

    def __init__(self, base: Instant) -> None:
        self._ahead_ns = base.mono_ns - base.wall_ns
        self._known: dict[str, Instant | None] = {}

    def parse(self, value: object) -> Instant | None:
        """Return the moment of a timestamp, None if it is none."""
        stamp = text(value)
        if stamp not in self._known:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[stamp] = self._parsed(stamp)
        return self._known[stamp]

    def _parsed(self, stamp: str) -> Instant | None:
        try:
            told = datetime.fromisoformat(stamp)
            wall_ns = (told - _EPOCH) // _MICROSECOND * 1000
        except (ValueError, TypeError, OverflowError):  # no timestamp, or one without a zone
            return None
        if not 0 <= wall_ns < 1 << 63:
            return None
        return Instant(wall_ns + self._ahead_ns, wall_ns)
