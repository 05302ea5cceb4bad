"""Decides whether a kubelet's list includes every container that holds devices."""

from collections.abc import Iterable

from pipeline.model import PartialRef


class ListCompleteness:
    """Compares a kubelet's list with the containers that were listed before the kubelet restarted.

    A kubelet that has just started responds before it knows its pods. While its API server is
    unreachable, it knows only static pods. A container that is missing from such a list may still
    hold devices. The list is complete again when each of the earlier containers has been in a list
    since the restart, or when the kubelet has run for `max_wait_ns`: the missing containers no
    longer exist then. Before the first complete list since podgpu's start, a list is complete only
    when the kubelet has run for `max_wait_ns`.

    All times are nanoseconds of the monotonic clock.

    Args:
        max_wait_ns: time after which a kubelet knows all of its pods.
    """

    def __init__(self, max_wait_ns: int) -> None:
        self._max_wait_ns = max_wait_ns
        self._since_ns = 0
        self._listed: frozenset[PartialRef] = frozenset()
        # None until a list was complete for the first time.
        self._missing: frozenset[PartialRef] | None = None

    def socket_changed(self, now: int, age_ns: int = 0) -> None:
        """Note that the socket is a new one: the first one, or one that replaced another.

        Args:
            now: the present time.
            age_ns: age of the socket; 0 if unknown.
        """
        self._since_ns = now - max(age_ns, 0)
        if self._missing is not None:
            self._missing |= self._listed

    def record_list(self, now: int, subjects: Iterable[PartialRef]) -> bool:
        """Note which containers a list includes; return whether the list is complete."""
        self._listed = frozenset(subjects)
        if now >= self._since_ns + self._max_wait_ns:
            self._missing = frozenset()
        elif self._missing is not None:
            self._missing -= self._listed
        return self._missing is not None and not self._missing
