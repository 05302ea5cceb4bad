"""What the podlist sink declares about itself."""

from typing import Final

from pipeline.component.kind import HANGING_FILE, Kind

KIND: Final = Kind(
    summary="writes koordinator's podlist.json: which container holds which GPU",
    options="sinks.podlist.options:Options",
    factory="sinks.podlist.sink:PodListSink",
    doctor="sinks.podlist.doctor:examine",
    timeout_fix=HANGING_FILE,
)
