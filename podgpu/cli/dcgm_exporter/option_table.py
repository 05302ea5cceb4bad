"""All options: those of dcgm-exporter and a few of podgpu's own."""

from typing import Final

from podgpu.cli.dcgm_exporter import debug_options, holder_options, reading_options, server_options
from podgpu.cli.dcgm_exporter.option import Option, Support, Type

OWN: Final = (
    Option(
        "labels",
        "",
        "PODGPU_LABELS",
        Type.TEXT,
        "dcgm",
        Support.OWN,
        "sinks.metrics.labels",
        "The format of the labels: dcgm, dcgm-hostname, dcgm-old or dcgm-1x. It overrides -o.",
    ),
    Option(
        "own",
        "",
        "PODGPU_OWN",
        Type.SWITCH,
        True,
        Support.OWN,
        "counters.own",
        "Whether podgpu's own fields are exported in addition to those of the counters file.",
    ),
    Option(
        "print-config",
        "",
        "",
        Type.SWITCH,
        False,
        Support.OWN,
        "",
        "Prints the resulting configuration, for `podgpu run -c FILE`.",
    ),
)

OPTIONS: Final = (
    *reading_options.OPTIONS,
    *holder_options.OPTIONS,
    *server_options.OPTIONS,
    *debug_options.OPTIONS,
    *OWN,
)

BY_NAME: Final = {
    name: option for option in OPTIONS for name in (option.name, option.short) if name
}
"""Each option by its long name and by its short name."""
