"""Log lines that would come with every message, told once in a while."""

import logging
from typing import Final

from pipeline.base.clock import Clock
from pipeline.model import NS

_MINUTE_NS: Final = 60 * NS


class LogThrottle:
    """Warns of the same thing once a minute at most; in between it is told at the level debug.

    Args:
        log: where to.
        clock: tells when.
    """

    def __init__(self, log: logging.Logger, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._logged_ns: dict[str, int] = {}

    def warn(self, what: str, text: str, *args: object) -> bool:
        """Log a text.

        Args:
            what: equal for what is the same thing.
            text: for people, with places for `args`.
            args: what stands there.

        Returns:
            Whether it was a warning.
        """
        now_ns = self._clock.now().mono_ns
        recent = {key: at for key, at in self._logged_ns.items() if now_ns - at < _MINUTE_NS}
        new = what not in recent
        if new:
            recent[what] = now_ns
        self._logged_ns = recent
        self._log.log(logging.WARNING if new else logging.DEBUG, text, *args)
        return new
