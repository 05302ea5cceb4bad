"""Whether a kubelet's list names every container that it gave devices to; pure."""

from collections.abc import Iterable

from pipeline.model import PartialRef


class ListCompleteness:
    """Calls the containers that were listed before the kubelet started anew.

    A kubelet that has just started answers before it has been told of its pods, and for as long as
    its API server is away it knows of static pods alone: its list is then no word on those that
    aren't in it. It is one again once every container of before has been listed, or when a kubelet
    has run for so long that those which it doesn't list have to be gone. If nothing was listed
    before, since we have just started too, only time tells.

    All times are nanoseconds of the monotonic clock.

    Args:
        max_wait_ns: how long a kubelet may have to learn of its pods.
    """

    def __init__(self, max_wait_ns: int) -> None:
        self._max_wait_ns = max_wait_ns
        self._since_ns = 0
        self._listed: frozenset[PartialRef] = frozenset()
        # None until a list was whole for the first time.
        self._missing: frozenset[PartialRef] | None = None

    def socket_changed(self, now: int, age_ns: int = 0) -> None:
        """Note that the socket is another one than before, or the first.

        Args:
            now: the moment.
            age_ns: of the socket, where that is known.
        """
        self._since_ns = now - max(age_ns, 0)
        if self._missing is not None:
            self._missing |= self._listed

    def record_list(self, now: int, subjects: Iterable[PartialRef]) -> bool:
        """Take who holds devices by a list; return whether nobody is missing from it."""
        self._listed = frozenset(subjects)
        if now >= self._since_ns + self._max_wait_ns:
            self._missing = frozenset()
        elif self._missing is not None:
            self._missing -= self._listed
        return self._missing is not None and not self._missing
