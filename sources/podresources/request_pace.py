"""Decides when to send requests to a kubelet."""

import random
from bisect import bisect_right

from pipeline.base.backoff import Backoff
from pipeline.model import NS
from sources.podresources.errors import Result

# The kubelet accepts a hundred requests a second in total, from all clients.
_GAP_NS = NS // 10
_FIRST_RETRY = 0.25
_RECHECK_NS = NS // 2
_FIRST_REJECTION_DELAY = 1.0
_MAX_REJECTION_DELAY = 60.0
# The kubelet may be restarting or rate-limiting; report it only if it happens again.
_TRANSIENT: tuple[Result, ...] = ("unreachable", "rejected")


class RequestSchedule:
    """Times of a socket's List requests: one each interval and one after each hint, with gaps.

    All times are nanoseconds of the monotonic clock.
    """

    def __init__(self, interval_ns: int, rng: random.Random | None = None) -> None:
        self._interval_ns = interval_ns
        self._rng = rng or random.Random()  # noqa: S311 - jitter
        self._wanted = True
        self._last_ns = -_GAP_NS
        self._due_ns = 0
        self._retry_ns: int | None = None
        self._failures = 0
        self._backoffs: dict[Result, Backoff] = {}

    @property
    def next_ns(self) -> int:
        """Time of the next request."""
        earliest = self._last_ns + _GAP_NS
        if self._retry_ns is not None:
            return max(self._retry_ns, earliest)
        return earliest if self._wanted else max(self._due_ns, earliest)

    def request_soon(self) -> None:
        """Send a request as soon as possible, because something may have changed."""
        self._wanted = True

    def reset(self) -> None:
        """Send all requests as soon as possible and forget failures: the socket was replaced."""
        self._wanted = True
        self._due_ns = 0
        self._forget_failures()

    def _forget_failures(self) -> None:
        self._retry_ns = None
        self._failures = 0
        self._backoffs.clear()

    def record_request(self, now: int) -> bool:
        """Note that a List is sent; return whether the interval is over: then all is requested."""
        self._last_ns = now
        self._wanted = False
        return now >= self._due_ns

    def record_response(self) -> None:
        """Note a successful response."""
        self._forget_failures()
        if self._last_ns >= self._due_ns:
            self._due_ns = self._last_ns + self._interval_ns

    def retry_soon(self, now: int) -> None:
        """Note a response that may be incomplete: repeat the request soon."""
        self._retry_ns = now + _RECHECK_NS

    def record_failure(self, now: int, result: Result) -> bool:
        """Note a failed request; return whether to report it."""
        self._failures += 1
        delay = self._delay(result)
        self._retry_ns = now + round(delay * NS)
        return result not in _TRANSIENT or self._failures > 1

    def _delay(self, result: Result) -> float:
        interval = self._interval_ns / NS
        if result not in _TRANSIENT:
            return interval
        first, most = _FIRST_RETRY, interval
        if result == "rejected":
            first, most = _FIRST_REJECTION_DELAY, max(interval, _MAX_REJECTION_DELAY)
        backoff = self._backoffs.setdefault(result, Backoff(first, most, rng=self._rng))
        return backoff.delay(0.0)


class PreparationPolls:
    """Times of polls of pods whose resource claims are not prepared yet.

    The kubelet lists such a pod before it knows its devices, and sends no event when it does.
    """

    def __init__(self, interval_ns: int) -> None:
        self._interval_ns = interval_ns
        self._delay_ns = 0
        self._last = ("", "")
        self.pods: tuple[tuple[str, str], ...] = ()
        self.next_ns: int | None = None
        """Time of the next poll; None without such pods."""

    def record_list(self, pods: tuple[tuple[str, str], ...], now: int) -> None:
        """Note the unprepared pods of a List, sorted."""
        if not set(pods) <= set(self.pods):
            self._delay_ns = round(_FIRST_RETRY * NS)
        self.pods = pods
        self.next_ns = now + self._delay_ns if pods else None

    def next_pods(self, most: int) -> tuple[tuple[str, str], ...]:
        """Return some of the pods, in turn: those after the previous ones."""
        at = bisect_right(self.pods, self._last)
        chosen = (self.pods[at:] + self.pods[:at])[:most]
        if chosen:
            self._last = chosen[-1]
        return chosen

    def record_unprepared(self, now: int) -> None:
        """Note that the pods are still unprepared, and double the delay of the next poll."""
        self._delay_ns = min(2 * self._delay_ns, self._interval_ns)
        self.next_ns = now + self._delay_ns
