"""Log records decoded with the protobuf classes of OTLP."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from pipeline.delivery.contract import Record
from sinks.otlp.signals import LOGS


@dataclass(frozen=True, slots=True)
class Log:
    """A log record, with its resource."""

    resource: dict[str, Any] = field(repr=False)
    event: str
    time: int
    observed: int
    severity: tuple[int, str]
    body: str
    attributes: dict[str, Any]
    schemas: tuple[str, str] = ("", "")


def logs(records: Iterable[Record]) -> list[Log]:
    """Decode the records that are log records; each must hold one."""
    found: list[Log] = []
    for record in records:
        if record.signal != LOGS.number:
            continue
        request = ExportLogsServiceRequest.FromString(record.data)
        assert request.SerializeToString() == record.data
        decoded = logs_of(record.data)
        assert len(decoded) == record.points == 1
        found += decoded
    return found


def logs_of(message: bytes) -> list[Log]:
    """Decode a request message."""
    return [
        Log(
            _attributes(under.resource.attributes),
            one.event_name,
            one.time_unix_nano,
            one.observed_time_unix_nano,
            (one.severity_number, one.severity_text),
            one.body.string_value,
            _attributes(one.attributes),
            (under.schema_url, scoped.schema_url),
        )
        for under in ExportLogsServiceRequest.FromString(message).resource_logs
        for scoped in under.scope_logs
        if scoped.scope.name == "podgpu"
        for one in scoped.log_records
    ]


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in pairs:
        assert pair.key
        assert pair.key not in found
        found[pair.key] = _value(pair.value)
    return found


def _value(value: AnyValue) -> Any:
    which = value.WhichOneof("value")
    if which == "kvlist_value":
        return _attributes(value.kvlist_value.values)
    return getattr(value, str(which))
