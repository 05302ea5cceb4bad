"""What the textfile sink declares about itself."""

from typing import Final

from pipeline.component.kind import HANGING_FILE, Kind

KIND: Final = Kind(
    summary="writes the metrics to a .prom file, for node_exporter's textfile collector",
    options="sinks.textfile.options:Options",
    factory="sinks.textfile.sink:TextfileSink",
    uses_plan=True,
    doctor="sinks.textfile.doctor:examine",
    timeout_fix=HANGING_FILE,
)
