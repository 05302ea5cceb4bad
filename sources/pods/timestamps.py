"""Convert timestamps of the API server to times on both clocks."""

from datetime import UTC, datetime, timedelta

from pipeline.base.clock import WallTimes
from pipeline.kube.json_access import as_text
from pipeline.model import Instant

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Timestamps(WallTimes):
    """Converts equal timestamps to equal times, during the life of the object."""

    def parse(self, value: object) -> Instant | None:
        """Return the time of a timestamp; None if it is not a timestamp."""
        try:
            parsed = datetime.fromisoformat(as_text(value))
            wall_ns = (parsed - _EPOCH) // _MICROSECOND * 1000
        except (ValueError, TypeError, OverflowError):  # not a timestamp, or without a time zone
            return None
        if not 0 <= wall_ns < 1 << 63:
            return None
        return self(wall_ns)
