"""Log records of what has happened: a holding that ended, an XID error. Pure.

Each stands in the resource in which the container's metrics are, or in the node's.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from pipeline.base.version import VERSION
from pipeline.changes.change_feed import XidChange
from pipeline.changes.descriptions import (
    PROGRAMS,
    figures,
    holding_id,
    holding_sentence,
    meaning,
    xid_sentence,
)
from pipeline.delivery.contract import Record
from pipeline.model import Holding, PartialRef, PodInfo, Snapshot, XidVictim
from sinks.otlp.encoding.attributes import Pairs, clean, key_values, merged
from sinks.otlp.encoding.semconv import SCHEMA_URL
from sinks.otlp.encoding.series_cache import SeriesCache
from sinks.otlp.encoding.usage_points import UsagePoints
from sinks.otlp.encoding.wire_format import ResourceTemplate
from sinks.otlp.messages import (
    AnyValue,
    ExportLogsServiceRequest,
    InstrumentationScope,
    KeyValue,
    KeyValueList,
    LogRecord,
    ResourceLogs,
    ScopeLogs,
    SeverityNumber,
)
from sinks.otlp.signals import LOGS

HOLDING_ENDED: Final = "podgpu.holding.ended"
XID_ERROR: Final = "podgpu.xid_error"

_SEVERITIES: Final = {
    "INFO": SeverityNumber.SEVERITY_NUMBER_INFO,
    "WARN": SeverityNumber.SEVERITY_NUMBER_WARN,
    "ERROR": SeverityNumber.SEVERITY_NUMBER_ERROR,
}


class EventRecords:
    """Makes log records, each a message by itself.

    Args:
        cache: knows resources and devices.
        usage: knows in which resource a container's metrics are.
    """

    def __init__(self, cache: SeriesCache, usage: UsagePoints) -> None:
        self._cache = cache
        self._usage = usage
        self._schema = SCHEMA_URL if cache.semconv else ""
        self._scope = InstrumentationScope(name="podgpu", version=VERSION)

    def records(
        self, snapshot: Snapshot, holdings: Iterable[Holding], errors: Iterable[XidChange]
    ) -> list[Record]:
        """Return what is to be sent: one of each holding, and of an error one for each victim.

        Args:
            snapshot: the newest, which the metrics were made of.
            holdings: that have ended.
            errors: XID errors; one without victims has a record of its own, of the node.
        """
        found = [self._holding(snapshot, one) for one in holdings]
        for error in errors:
            found += self._error(snapshot, error)
        return [
            Record(data, points=1, created_ns=snapshot.at.wall_ns, signal=LOGS.number)
            for data in found
        ]

    def _holding(self, snapshot: Snapshot, holding: Holding) -> bytes:
        told: list[tuple[str, str | int]] = [
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
            [(f"podgpu.holding.{name}", value) for name, value in told],
        )
        if holding.xids:
            counts = [(str(code), count) for code, count in holding.xids]
            codes = KeyValueList(values=key_values(merged(counts)))
            record.attributes.append(
                KeyValue(key="podgpu.holding.xids", value=AnyValue(kvlist_value=codes))
            )
        place = self._resource_of(snapshot, holding.device, holding.subject, holding.pod)
        return self._message(place, record)

    def _error(self, snapshot: Snapshot, one: XidChange) -> Iterator[bytes]:
        error = one.error
        for victim in error.victims or (None,):
            place, device = self._cache.on_node, error.device
            if victim is not None:
                device = victim.device
                place = self._resource_of(snapshot, device, victim.subject, victim.pod)
            record = self._record(
                snapshot,
                XID_ERROR,
                "WARN" if error.code in PROGRAMS else "ERROR",
                xid_sentence(error, victim.subject if victim is not None else None),
                snapshot.at.wall_of(error.at),
                [*self._device(snapshot, device), self._cache.xid_attribute(error.code)],
                [(f"podgpu.xid.{name}", value) for name, value in _about(one, victim)],
            )
            yield self._message(place, record)

    def _record(
        self,
        snapshot: Snapshot,
        name: str,
        severity: str,
        body: str,
        time: int,
        *attributes: Iterable[tuple[str, str | int]],
    ) -> LogRecord:
        pairs = merged([("event.name", name)], *attributes)
        return LogRecord(
            time_unix_nano=max(time, 0),
            observed_time_unix_nano=max(snapshot.at.wall_ns, 0),
            severity_number=_SEVERITIES[severity],
            severity_text=severity,
            body=AnyValue(string_value=clean(body)),
            attributes=key_values(pairs),
            event_name=name,
        )

    def _device(self, snapshot: Snapshot, uuid: str) -> Pairs:
        """Return the attributes that name a device; its uuid alone, where it has gone."""
        attribution = snapshot.layout.attributions.get(uuid)
        if attribution is None:
            return (("hw.id" if self._cache.semconv else "UUID", uuid),)
        return self._cache.device_attributes(attribution.device)

    def _resource_of(
        self, snapshot: Snapshot, device: str, subject: PartialRef, pod: PodInfo | None
    ) -> ResourceTemplate:
        """Return the resource of a container: the one that its metrics are in."""
        place = self._usage.resource_of(device, subject)
        if place is not None:
            return place
        for attribution in snapshot.layout.attributions.values():
            for holder in attribution.holders:
                if replace(holder.subject, container_id="") == subject:
                    return self._cache.container(holder.subject, holder.pod)
        return self._cache.container(subject, pod)

    def _message(self, place: ResourceTemplate, record: LogRecord) -> bytes:
        # A resource stands in ResourceLogs as it does in ResourceMetrics.
        found = ResourceLogs.FromString(place.front)
        found.schema_url = self._schema
        scope = ScopeLogs(scope=self._scope, log_records=[record], schema_url=self._schema)
        found.scope_logs.append(scope)
        return ExportLogsServiceRequest(resource_logs=[found]).SerializeToString()


def _about(one: XidChange, victim: XidVictim | None) -> Iterator[tuple[str, str | int]]:
    error = one.error
    yield "id", one.id
    yield "code", error.code
    yield "meaning", meaning(error.code)
    if one.is_update:
        yield "update", True
    if error.pid is not None:
        yield "pid", error.pid
    yield "process", error.process
    yield "victims", len(error.victims)
    if victim is not None:
        yield "holds", victim.holds
        yield "uses", victim.uses
        yield "caused", victim.caused
