"""What the otlp sink declares about itself."""

from typing import Final

from pipeline.component.contracts import Delivery
from pipeline.component.kind import Kind
from pipeline.delivery.metrics import FAMILIES

KIND: Final = Kind(
    summary="pushes readings to an OpenTelemetry receiver, over gRPC or HTTP",
    options="sinks.otlp.options:Options",
    factory="sinks.otlp.push:OtlpSink",
    delivery=Delivery.QUEUE,
    uses_plan=True,
    doctor="sinks.otlp.doctor:examine",
    families=FAMILIES,
    timeout_fix="check that the receiver responds, and the file systems of certificates and token",
)
