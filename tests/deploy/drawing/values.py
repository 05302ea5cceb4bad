"""Texts and colours of values: units, thresholds and value mappings."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

COLOURS: Mapping[str, str] = {
    "green": "#73bf69",
    "orange": "#ff9830",
    "blue": "#5794f2",
    "red": "#f2495c",
    "yellow": "#fade2a",
    "purple": "#b877d9",
    "text": "#ccccdc",
    "transparent": "none",
}
PALETTE: Sequence[str] = (
    *("#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#5794f2", "#b877d9", "#705da0"),
    *("#37872d", "#fade2a", "#447ebc", "#c15c17", "#890f02", "#0a437c", "#6d1f62", "#584477"),
)
_STEPS: Mapping[str, tuple[Sequence[str], float]] = {
    "short": (("", " K", " Mil", " Bil"), 1000),
    "watt": ((" W", " kW", " MW"), 1000),
    "kwatth": ((" kWh", " MWh", " GWh"), 1000),
    "hertz": ((" Hz", " kHz", " MHz", " GHz"), 1000),
    "Bps": ((" B/s", " kB/s", " MB/s", " GB/s", " TB/s"), 1000),
    "bytes": ((" B", " KiB", " MiB", " GiB", " TiB"), 1024),
    "mbytes": ((" MiB", " GiB", " TiB"), 1024),
}
_PLAIN: Mapping[str, tuple[float, str]] = {
    "percent": (1, "%"),
    "percentunit": (100, "%"),
    "celsius": (1, " °C"),
    "cps": (1, " c/s"),
}


def colour(name: str) -> str:
    """Return a colour of Grafana as SVG understands it."""
    return COLOURS.get(name, name)


def number(value: float, unit: str, decimals: int | None, now: float) -> str:
    """Return a value in its unit.

    Args:
        value: the value.
        unit: Grafana's name of the unit.
        decimals: how many; None for three significant digits.
        now: the present Unix time, for times.
    """
    if unit == "dateTimeFromNow":
        return f"{_duration(now - value / 1000)} ago"
    if unit == "s":
        return _duration(value)
    if unit == "locale":
        return f"{value:,.{decimals or 0}f}"
    if unit in _PLAIN:
        factor, word = _PLAIN[unit]
        return _digits(value * factor, decimals) + word
    words, base = _STEPS[unit]
    at = 0
    while abs(value) >= base and at < len(words) - 1:
        value, at = value / base, at + 1
    return _digits(value, decimals) + words[at]


def _digits(value: float, decimals: int | None) -> str:
    if decimals is not None:
        return f"{value:.{decimals}f}"
    if value == 0 or abs(value) >= 100 or value == round(value):
        return f"{value:.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def _duration(seconds: float) -> str:
    for size, word in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if abs(seconds) >= 1.5 * size:
            return f"{seconds / size:.1f} {word}"
    return f"{seconds:.1f} s"


def threshold(value: float, config: Mapping[str, Any]) -> str:
    """Return the colour of the highest step that a value reaches."""
    found = "text"
    for step in config.get("thresholds", {}).get("steps", ()):
        if step["value"] is None or value >= step["value"]:
            found = step["color"]
    return found


def shown(value: object, config: Mapping[str, Any], now: float) -> tuple[str, str]:
    """Return the text and the colour of a value, by the configuration of its field."""
    for mapping in config.get("mappings", ()):
        found: Any = None
        if mapping["type"] == "value":
            key = f"{value:g}" if isinstance(value, float) else str(value)
            found = mapping["options"].get(key)
        elif isinstance(value, float) and math.isnan(value):
            found = mapping["options"]["result"]
        if found is not None:
            return found["text"], colour(found["color"])
    if isinstance(value, float):
        if math.isnan(value):
            return str(config.get("noValue", "")), colour("text")
        text = number(value, config.get("unit") or "short", config.get("decimals"), now)
        return text, colour(threshold(value, config))
    return str(value), colour("text")


def of_field(panel: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the configuration of a field: the panel's, with the overrides for its name."""
    config = dict(panel["fieldConfig"]["defaults"])
    custom = dict(config.get("custom", {}))
    for override in panel["fieldConfig"]["overrides"]:
        if override["matcher"]["options"] == name:
            for each in override["properties"]:
                target = custom if each["id"].startswith("custom.") else config
                target[each["id"].removeprefix("custom.")] = each["value"]
    return {**config, "custom": custom}
