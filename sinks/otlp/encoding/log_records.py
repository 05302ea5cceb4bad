"""Encode events as log records: ended holdings and XID errors. Pure.

A record is in the same resource as the container's metrics, or in the node's resource.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from pipeline.base.version import VERSION
from pipeline.changes.descriptions import (
    PROGRAMS,
    action,
    figures,
    holding_id,
    holding_sentence,
    meaning,
    xid_sentence,
)
from pipeline.changes.unreported_changes import UnreportedChanges, XidChange
from pipeline.delivery.contract import Record
from pipeline.model import Holding, PartialRef, PodInfo, Snapshot, XidVictim
from sinks.otlp.encoding.attribute_sets import Pairs, clean, key_values, merged
from sinks.otlp.encoding.semconv import SCHEMA_URL
from sinks.otlp.encoding.series_cache import SeriesCache
from sinks.otlp.encoding.usage_points import UsagePoints
from sinks.otlp.encoding.wire_format import ResourceTemplate
from sinks.otlp.messages import common_pb2, logs_pb2, logs_service_pb2
from sinks.otlp.signals import LOGS

HOLDING_ENDED: Final = "podgpu.holding.ended"
XID_ERROR: Final = "podgpu.xid_error"


class LogRecordEncoder:
    """Makes log records. Each queue record holds one complete OTLP message with one log record.

    Args:
        cache: provides resources and device attributes.
        usage: knows the resource of each container's metrics.
    """

    def __init__(self, cache: SeriesCache, usage: UsagePoints) -> None:
        self._cache = cache
        self._usage = usage
        self._schema = SCHEMA_URL if cache.semconv else ""
        self._scope = common_pb2.InstrumentationScope(name="podgpu", version=VERSION)

    def records(self, snapshot: Snapshot, changes: UnreportedChanges) -> list[Record]:
        """Return one record for each holding, and one for each affected container of an error.

        An error without affected containers has a record in the node's resource.

        Args:
            snapshot: the newest snapshot, which was already encoded as metrics.
            changes: holdings that have ended, and XID errors.
        """
        messages = [self._holding(snapshot, one) for one in changes.holdings]
        for error in changes.errors:
            messages += self._error(snapshot, error)
        return [
            Record(data, points=1, created_ns=snapshot.at.wall_ns, signal=LOGS.number)
            for data in messages
        ]

    def _holding(self, snapshot: Snapshot, holding: Holding) -> bytes:
        attributes: list[tuple[str, str | int]] = [
            ("id", holding_id(holding)),
            ("start_unix_nanoseconds", snapshot.at.wall_of(holding.start)),
            ("source", holding.source),
            ("evidence", "" if holding.evidence is None else holding.evidence.name.lower()),
            *figures(holding),
        ]
        record = self._record(
            snapshot,
            HOLDING_ENDED,
            "INFO",
            holding_sentence(holding),
            snapshot.at.wall_of(holding.end or holding.start),
            self._device(snapshot, holding.device),
            [(f"podgpu.holding.{name}", value) for name, value in attributes],
        )
        if holding.xids:
            counts = [(str(code), count) for code, count in holding.xids]
            codes = common_pb2.KeyValueList(values=key_values(merged(counts)))
            record.attributes.append(
                common_pb2.KeyValue(
                    key="podgpu.holding.xids", value=common_pb2.AnyValue(kvlist_value=codes)
                )
            )
        resource = self._resource_of(snapshot, holding.device, holding.subject, holding.pod)
        return self._message(resource, record)

    def _error(self, snapshot: Snapshot, change: XidChange) -> Iterator[bytes]:
        error = change.error
        for victim in error.victims or (None,):
            resource, device = self._cache.on_node, error.device
            if victim is not None:
                device = victim.device
                resource = self._resource_of(snapshot, device, victim.subject, victim.pod)
            record = self._record(
                snapshot,
                XID_ERROR,
                "WARN" if error.code in PROGRAMS else "ERROR",
                xid_sentence(error, victim.subject if victim is not None else None),
                snapshot.at.wall_of(error.at),
                [*self._device(snapshot, device), self._cache.xid_attribute(error.code)],
                [(f"podgpu.xid.{name}", value) for name, value in _xid_attributes(change, victim)],
            )
            yield self._message(resource, record)

    def _record(
        self,
        snapshot: Snapshot,
        name: str,
        severity: str,
        body: str,
        time: int,
        *attributes: Iterable[tuple[str, str | int]],
    ) -> logs_pb2.LogRecord:
        pairs = merged([("event.name", name)], *attributes)
        return logs_pb2.LogRecord(
            time_unix_nano=max(time, 0),
            observed_time_unix_nano=max(snapshot.at.wall_ns, 0),
            severity_number=logs_pb2.SeverityNumber.Value(f"SEVERITY_NUMBER_{severity}"),
            severity_text=severity,
            body=common_pb2.AnyValue(string_value=clean(body)),
            attributes=key_values(pairs),
            event_name=name,
        )

    def _device(self, snapshot: Snapshot, uuid: str) -> Pairs:
        """Return the attributes of a device; only its UUID if the device is gone."""
        attribution = snapshot.layout.attributions.get(uuid)
        if attribution is None:
            return (("hw.id" if self._cache.semconv else "UUID", uuid),)
        return self._cache.device_attributes(attribution.device)

    def _resource_of(
        self, snapshot: Snapshot, device: str, subject: PartialRef, pod: PodInfo | None
    ) -> ResourceTemplate:
        """Return the resource of a container: the same as for its metrics."""
        resource = self._usage.resource_of(device, subject)
        if resource is not None:
            return resource
        for attribution in snapshot.layout.attributions.values():
            for holder in attribution.holders:
                if replace(holder.subject, container_id="") == subject:
                    return self._cache.container(holder.subject, holder.pod)
        return self._cache.container(subject, pod)

    def _message(self, resource: ResourceTemplate, record: logs_pb2.LogRecord) -> bytes:
        # The bytes of a resource are the same in ResourceLogs as in ResourceMetrics.
        message = logs_pb2.ResourceLogs.FromString(resource.front)
        message.schema_url = self._schema
        scope = logs_pb2.ScopeLogs(scope=self._scope, log_records=[record], schema_url=self._schema)
        message.scope_logs.append(scope)
        return logs_service_pb2.ExportLogsServiceRequest(
            resource_logs=[message]
        ).SerializeToString()


def _xid_attributes(change: XidChange, victim: XidVictim | None) -> Iterator[tuple[str, str | int]]:
    error = change.error
    yield "id", change.id
    yield "code", error.code
    yield "meaning", meaning(error.code)
    yield "action", action(error.code)
    if change.is_update:
        yield "update", True
    if error.pid is not None:
        yield "pid", error.pid
    yield "process", error.process
    yield "victims", len(error.victims)
    if victim is not None:
        yield "holds", victim.holds
        yield "uses", victim.uses
        yield "caused", victim.caused
