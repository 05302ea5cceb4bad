"""Convert timestamps of the API server to instants."""

from datetime import UTC, datetime, timedelta

from pipeline.base.clock import WallTimes
from pipeline.kube.json_access import as_text
from pipeline.model import Instant

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Timestamps(WallTimes):
    """Converts timestamps to instants. Equal timestamps give equal instants."""

    def parse(self, value: object) -> Instant | None:
        """Return the instant of a timestamp; None if it is invalid or has no time zone."""
        try:
            parsed = datetime.fromisoformat(as_text(value))
            wall_ns = (parsed - _EPOCH) // _MICROSECOND * 1000
        except (ValueError, TypeError, OverflowError):  # not a timestamp, or without a time zone
            return None
        if not 0 <= wall_ns < 1 << 63:
            return None
        return self(wall_ns)
