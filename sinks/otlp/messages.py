"""OpenTelemetry's protobuf messages. Only this module imports them."""

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import (
    AnyValue,
    InstrumentationScope,
    KeyValue,
    KeyValueList,
)
from opentelemetry.proto.logs.v1.logs_pb2 import (
    LogRecord,
    ResourceLogs,
    ScopeLogs,
    SeverityNumber,
)
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
    "ExportLogsServiceRequest",
    "ExportLogsServiceResponse",
    "ExportMetricsServiceRequest",
    "ExportMetricsServiceResponse",
    "Gauge",
    "InstrumentationScope",
    "KeyValue",
    "KeyValueList",
    "LogRecord",
    "Metric",
    "NumberDataPoint",
    "Resource",
    "ResourceLogs",
    "ResourceMetrics",
    "ScopeLogs",
    "ScopeMetrics",
    "SeverityNumber",
    "Sum",
]
