"""Limits repeated warnings to one a minute."""

import logging
from typing import Final

from pipeline.base.clock import Clock
from pipeline.model import NS

_MINUTE_NS: Final = 60 * NS


class LogThrottle:
    """Logs each warning at most once a minute; repetitions are logged at level debug.

    Args:
        log: the logger.
        clock: measures the minute.
    """

    def __init__(self, log: logging.Logger, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._logged_ns: dict[str, int] = {}

    def warn(self, key: str, text: str, *args: object) -> bool:
        """Log a message.

        Args:
            key: identifies the warning; equal for repetitions.
            text: format of the message.
            args: values for the format.

        Returns:
            Whether it was logged as a warning.
        """
        now_ns = self._clock.now().mono_ns
        recent = {key: at for key, at in self._logged_ns.items() if now_ns - at < _MINUTE_NS}
        new = key not in recent
        if new:
            recent[key] = now_ns
        self._logged_ns = recent
        self._log.log(logging.WARNING if new else logging.DEBUG, text, *args)
        return new
