"""Fields of statistics between two readings: minimum, mean and maximum of the driver's samples.

The driver samples some values many times a second into a buffer. A reading every fifteen seconds
misses a peak of a tenth of a second, but the maximum of the samples contains it.
"""

from typing import Final

from pipeline.fields.field import Field, Tier

SAMPLED: Final = (
    # name, unit, NVML's sampling type, description
    ("power", "watts", 0, "Power draw of the board"),
    ("gpu_utilization", "percent", 1, "Utilisation of the GPU"),
    ("memory_copy_utilization", "percent", 2, "Utilisation of the memory's interface"),
    ("encoder_utilization", "percent", 3, "Utilisation of the video encoders"),
    ("decoder_utilization", "percent", 4, "Utilisation of the video decoders"),
    ("sm_clock", "mhz", 5, "Clock of the streaming multiprocessors"),
    ("memory_clock", "mhz", 6, "Clock of the device memory"),
)

STATISTICS_OF: Final = ("min", "mean", "max")

_HELP_TEXTS: Final = {"min": "minimum", "mean": "mean", "max": "maximum"}
_UNITS: Final = {"watts": "watts", "percent": "percent", "mhz": "MHz"}

STATISTICS: tuple[Field, ...] = tuple(
    Field(
        f"{name}_{which}_{unit}",
        _UNITS[unit],
        f"{about}: the {_HELP_TEXTS[which]} of the driver's samples within the window, in "
        f"{_UNITS[unit]}.",
        f"nvmlDeviceGetSamples({kind})",
        tier=Tier.FAST,
        group="statistics",
    )
    for name, unit, kind, about in SAMPLED
    for which in STATISTICS_OF
)
