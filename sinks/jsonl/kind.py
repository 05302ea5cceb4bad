"""What the jsonl sink declares about itself."""

from typing import Final

from pipeline.component.contracts import Delivery
from pipeline.component.kind import HANGING_FILE, Kind
from pipeline.delivery.metrics import FAMILIES

KIND: Final = Kind(
    summary="writes one JSON object per device and round of readings to a file or stdout",
    options="sinks.jsonl.options:Options",
    factory="sinks.jsonl.sink:make_sink",
    delivery=Delivery.QUEUE,
    uses_plan=True,
    doctor="sinks.jsonl.doctor:examine",
    families=FAMILIES,
    timeout_fix=HANGING_FILE,
)
