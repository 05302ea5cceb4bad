"""Numbers that dcgm-exporter accepts and podgpu cannot use: the nearest one that it can use."""

from typing import Final

from config.errors import ConfigError
from podgpu.cli.dcgm_exporter.go_arguments import Setting, Settings

_INTERVAL: Final = "collect-interval"
_HOURS_24: Final = 24 * 3600 * 1000
LIMITS: Final = {
    _INTERVAL: (100, None),
    "xid-count-window-size": (1000, _HOURS_24),
    "clock-events-count-window-size": (1000, _HOURS_24),
}
"""Least and greatest number of milliseconds of an option; None if podgpu needs no limit. They are
the limits of the options of the source `nvml` and, for the interval, `hostengine`."""


def within_limits(settings: Settings) -> tuple[Settings, list[str]]:
    """Return the settings with all numbers within podgpu's limits, and a warning for each change.

    Raises:
        ConfigError: the interval is 0 or negative, which DCGM refuses too.
    """
    moved: dict[str, Setting] = {}
    warnings: list[str] = []
    for name, (least, most) in LIMITS.items():
        number = settings.number(name)
        if name == _INTERVAL and number <= 0:
            raise _no_interval(settings, number, least)
        used = max(number, least) if most is None else min(max(number, least), most)
        if used == number:
            continue
        moved[name] = Setting(used, settings.origin(name))
        limit = "minimum" if used == least else "maximum"
        # An interval of 30 is often meant as 30 seconds.
        hint = f"; for {number} seconds write {number * 1000}" if 0 < number < least else ""
        warnings.append(
            f"{settings.origin(name)}: {number} ms is beyond podgpu's {limit}; podgpu uses "
            f"{used} ms{hint}"
        )
    return settings.below(moved), warnings


def _no_interval(settings: Settings, number: int, least: int) -> ConfigError:
    text = f"{number} is not an interval: the unit is milliseconds (ms)"
    return settings.refused(_INTERVAL, text, f"write {least} or more")
