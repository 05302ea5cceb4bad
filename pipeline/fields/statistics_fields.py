"""Fields of what happened between two readings: least, mean and most of the driver's own samples.

The driver samples some values many times a second into a buffer; what a page shows of a value once
in fifteen seconds misses a peak of a tenth of a second, its most doesn't.
"""

from typing import Final

from pipeline.fields.field import Field, Tier

SAMPLED: Final = (
    # name, unit, NVML's sampling type, what it is
    ("power", "watts", 0, "Power draw of the board"),
    ("gpu_utilization", "percent", 1, "Utilisation of the GPU"),
    ("memory_copy_utilization", "percent", 2, "Utilisation of the memory's interface"),
    ("encoder_utilization", "percent", 3, "Load of the video encoders"),
    ("decoder_utilization", "percent", 4, "Load of the video decoders"),
    ("sm_clock", "mhz", 5, "Clock of the streaming multiprocessors"),
    ("memory_clock", "mhz", 6, "Clock of the device memory"),
)

STATISTICS_OF: Final = ("min", "mean", "max")

_WORDS: Final = {"min": "least", "mean": "mean", "max": "most"}
_UNITS: Final = {"watts": "watts", "percent": "percent", "mhz": "MHz"}

STATISTICS: tuple[Field, ...] = tuple(
    Field(
        f"{name}_{which}_{unit}",
        "gauge",
        _UNITS[unit],
        f"{about}: the {_WORDS[which]} of the driver's own samples within the window, in "
        f"{_UNITS[unit]}.",
        f"nvmlDeviceGetSamples({kind})",
        Tier.FAST,
        group="statistics",
    )
    for name, unit, kind, about in SAMPLED
    for which in STATISTICS_OF
)
