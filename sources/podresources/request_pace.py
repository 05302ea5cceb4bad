"""Decides when requests are sent to a kubelet."""

import random
from collections.abc import Collection

from pipeline.base.backoff import Backoff
from pipeline.model import NS
from sources.podresources.kubelet_connection import Result

# The kubelet accepts a hundred requests a second in total, from all clients.
_GAP_NS = NS // 10
_FIRST_RETRY = 0.25
_RECHECK_NS = NS // 2
_FIRST_REJECTION_DELAY = 1.0
_MAX_REJECTION_DELAY = 60.0
# The kubelet may be restarting or rate-limiting: such a failure is reported only if it repeats.
_TRANSIENT: tuple[Result, ...] = ("unreachable", "rejected")


class RequestSchedule:
    """Times of a socket's List requests: one each interval and one after each hint.

    There are gaps between requests, and delays after failures. The kubelet lists a pod before the
    pod's ResourceClaims are prepared, and sends no event when they are. Therefore a List request
    is repeated while a pod has unprepared ResourceClaims, with a delay that doubles up to the
    interval.

    All times are nanoseconds of the monotonic clock.
    """

    def __init__(self, interval_ns: int, rng: random.Random | None = None) -> None:
        self._interval_ns = interval_ns
        self._rng = rng or random.Random()  # noqa: S311 - jitter
        self._wanted = True
        self._last_ns = -_GAP_NS
        self._due_ns = 0
        self._retry_ns: int | None = None
        self._unprepared: Collection[tuple[str, str]] = ()
        self._repeat_ns: int | None = None
        self._repeat_delay_ns = 0
        self._failures = 0
        self._backoffs: dict[Result, Backoff] = {}

    @property
    def next_ns(self) -> int:
        """Time at which the next request must be sent."""
        earliest = self._last_ns + _GAP_NS
        if self._retry_ns is not None:
            return max(self._retry_ns, earliest)
        if self._wanted:
            return earliest
        repeat_ns = self._due_ns if self._repeat_ns is None else self._repeat_ns
        return max(min(self._due_ns, repeat_ns), earliest)

    def request_soon(self) -> None:
        """Make a request due as soon as possible, because something may have changed."""
        self._wanted = True

    def reset(self) -> None:
        """Make all requests due immediately, and forget failures: the socket was replaced."""
        self._wanted = True
        self._due_ns = 0
        self._forget_failures()

    def _forget_failures(self) -> None:
        self._retry_ns = None
        self._failures = 0
        self._backoffs.clear()

    def record_request(self, now: int) -> bool:
        """Note that List is sent; return whether allocatable devices should be requested too."""
        self._last_ns = now
        self._wanted = False
        return now >= self._due_ns

    def record_response(self, unprepared: Collection[tuple[str, str]] = ()) -> None:
        """Note a successful response.

        `unprepared` has namespace and name of the pods whose ResourceClaims are not prepared.
        """
        self._forget_failures()
        if self._last_ns >= self._due_ns:
            self._due_ns = self._last_ns + self._interval_ns
        if not set(unprepared) <= set(self._unprepared):
            self._repeat_delay_ns = round(_FIRST_RETRY * NS)
        self._repeat_ns = self._last_ns + self._repeat_delay_ns if unprepared else None
        self._repeat_delay_ns = min(2 * self._repeat_delay_ns, self._interval_ns)
        self._unprepared = unprepared

    def retry_soon(self, now: int) -> None:
        """Make a request due soon, because the last response may be incomplete."""
        self._retry_ns = now + _RECHECK_NS

    def record_failure(self, now: int, result: Result) -> bool:
        """Note a failed request; return whether the failure should be reported."""
        self._failures += 1
        interval = self._interval_ns / NS
        if result not in _TRANSIENT:
            self._retry_ns = now + self._interval_ns
            return True
        first, most = _FIRST_RETRY, interval
        if result == "rejected":
            first, most = _FIRST_REJECTION_DELAY, max(interval, _MAX_REJECTION_DELAY)
        backoff = self._backoffs.setdefault(result, Backoff(first, most, rng=self._rng))
        self._retry_ns = now + round(backoff.delay(0.0) * NS)
        return self._failures > 1
