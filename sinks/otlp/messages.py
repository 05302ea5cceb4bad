"""OpenTelemetry's protobuf modules. Only this module imports them."""

from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.metrics.v1 import metrics_pb2
from opentelemetry.proto.resource.v1 import resource_pb2

__all__ = [
    "common_pb2",
    "logs_pb2",
    "logs_service_pb2",
    "metrics_pb2",
    "metrics_service_pb2",
    "resource_pb2",
]
