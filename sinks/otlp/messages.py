"""OpenTelemetry's messages; the only module that imports them."""

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    DataPointFlags,
    Gauge,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

__all__ = [
    "AggregationTemporality",
    "AnyValue",
    "DataPointFlags",
    "ExportMetricsServiceRequest",
    "ExportMetricsServiceResponse",
    "Gauge",
    "InstrumentationScope",
    "KeyValue",
    "Metric",
    "NumberDataPoint",
    "Resource",
    "ResourceMetrics",
    "ScopeMetrics",
    "Sum",
]
