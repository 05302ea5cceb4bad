"""A slow and simple encoder; `Encoder` must have the same results."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from pipeline.exposition.naming import PageNaming
from pipeline.exposition.options import PageOptions
from pipeline.fields import FieldPlan
from pipeline.model import NS, Attribution, Holder, Instant, Snapshot, Value, only_holder
from sinks.otlp.encoding import attribute_sets, metric_names
from sinks.otlp.encoding.attribute_sets import Pairs, merged
from sinks.otlp.encoding.semconv import INSTRUMENTS, SCHEMA_URL, STATES, Instrument
from sinks.otlp.encoding.steady_time import WallTimeline
from tests.sinks.otlp.encoding.support import Identity, Point


@dataclass
class SentSeries:
    """A series of which a point was sent."""

    last: Point
    started: int
    raw: Value | None = None


@dataclass(frozen=True)
class Candidate:
    resource: Pairs
    instrument: Instrument
    attributes: Pairs
    value: Value | None
    at: Instant
    fresh: bool
    divisor: int | Fraction = 1
    start: Instant | None = None
    since: Instant | None = None
    series: tuple[object, ...] = ()

    @property
    def identity(self) -> Identity:
        return (_sorted(self.resource), self.instrument.name, _sorted(self.attributes))


def _sorted(pairs: Pairs) -> Pairs:
    return tuple(sorted(pairs, key=lambda pair: pair[0]))


class Reference:
    def __init__(
        self, node: str, plan: FieldPlan, names: str, *, containers: bool, temporality: str
    ) -> None:
        self.node, self.plan, self.containers = node, plan, containers
        self.semconv = names == "semconv"
        self.delta = temporality == "delta"
        self.style = PageNaming(PageOptions(hostname=False), plan, node)
        self.timeline = WallTimeline()
        self.earliest = self.latest = 0
        self.sent_series: dict[Identity, SentSeries] = {}
        self.previous_series: set[tuple[object, ...]] | None = None
        self.origins: dict[Identity, tuple[int, int]] = {}
        self.not_finite = 0
        self.duplicates = 0

    def encode(self, snapshot: Snapshot) -> list[Point]:
        self.timeline.update(snapshot.at)
        self.earliest = self.latest + 1_000_000
        known: dict[Identity, Candidate] = {}
        for candidate in self.candidates(snapshot):
            if candidate.identity not in known:
                known[candidate.identity] = candidate
            elif candidate.fresh:
                self.duplicates += 1
        for gone in self.origins.keys() - known.keys():
            del self.origins[gone]
        for identity, one in known.items():
            reassigned = self.previous_series is not None and one.series in self.previous_series
            if (
                one.since is not None
                and one.instrument.kind == "counter"
                and identity not in self.sent_series
                and not reassigned
                and not (self.delta and self.previous_series is None)
            ):
                started = one.since.mono_ns
                self.origins.setdefault(identity, (started, self.timeline(started)))
        self.previous_series = {one.series for one in known.values()}
        ended = self.sent_series.keys() - known.keys()
        ends = [self.end(identity, self.earliest) for identity in ended]
        if ended:
            self.latest = self.earliest
            self.earliest += 1_000_000
        made = [self.point(one) for one in known.values() if one.fresh]
        return [*ends, *(point for point in made if point is not None)]

    def time(self, mono_ns: int) -> int:
        time = self.timeline(mono_ns)
        if self.earliest - NS // 10 <= time < self.earliest:
            time = self.earliest
        self.latest = max(self.latest, time)
        return time

    def end(self, identity: Identity, time: int) -> Point:
        last = self.sent_series.pop(identity).last
        start = last.start
        if self.delta and last.kind == "counter":
            start = last.time
        return Point(
            *identity,
            time,
            None,
            start,
            last.kind,
            last.unit,
            ended=True,
            temporality=last.temporality,
            schemas=last.schemas,
            about=last.about,
        )

    def point(self, one: Candidate) -> Point | None:
        value, metric = one.value, one.instrument
        if value is None:
            return None
        time = self.time(one.at.mono_ns)
        sent_series = self.sent_series.get(one.identity)
        counter = metric.kind == "counter"
        try:
            sent = value
            if counter and self.delta:
                sent = value if math.isfinite(value) else 10**400
                before = (
                    sent_series.raw if sent_series else 0 if one.identity in self.origins else value
                )
                assert before is not None
                if (
                    sent_series
                    and one.start is not None
                    and one.start.mono_ns > sent_series.started
                ):
                    before = 0
                sent = sent - before if sent >= before else sent
            if one.divisor != 1:
                sent = float(sent / one.divisor)
            if not (metric.whole and isinstance(sent, int) and -(2**63) <= sent < 2**63):
                sent = float(sent)
                if not math.isfinite(sent):
                    sent = float(10**400)
        except OverflowError:
            self.not_finite += 1
            return None
        started, start = self.origins.pop(one.identity, (one.at.mono_ns, time))
        if (
            sent_series is None
            and counter
            and one.start is not None
            and one.start.mono_ns > started
        ):
            started = one.start.mono_ns
            if not self.delta:
                start = self.time(started)
        if sent_series is not None:
            started, start = sent_series.started, sent_series.last.start
            if counter and self.delta:
                start = sent_series.last.time
            if counter and one.start is not None and one.start.mono_ns > started:
                started = one.start.mono_ns
                if not self.delta:
                    start = self.time(started)
        kind = metric.kind
        point = Point(
            *one.identity,
            time,
            sent,
            0 if kind == "gauge" else start,
            kind,
            metric.unit,
            temporality=0 if kind == "gauge" else 1 if counter and self.delta else 2,
            schemas=(SCHEMA_URL,) * 2 if self.semconv else ("", ""),
            about=metric.description,
        )
        self.sent_series[one.identity] = SentSeries(point, started, value)
        return point

    def candidates(self, snapshot: Snapshot) -> Iterator[Candidate]:
        fresh = set(snapshot.fresh)
        for at, (series, reading) in enumerate(
            zip(snapshot.layout.series, snapshot.readings, strict=True)
        ):
            row = next(iter(self.plan.rows_of(series.field)), None)
            attribution = series.attribution
            device = attribution.device
            if row is None:
                continue
            mapping = (
                metric_names.semconv_mapping(row, instance=device.mig is not None)
                if self.semconv
                else metric_names.dcgm_mapping(row, self.style)
            )
            if mapping is None:
                continue
            own = series.attrs
            if self.semconv and series.field == "xid_errors":
                own = tuple(
                    ("error.type", f"xid_{value}") if name == "xid" else (name, value)
                    for name, value in own
                )
            yield Candidate(
                self.resource(attribution),
                mapping.instrument,
                merged(
                    self.device(attribution, mapping.instrument.typed, mapping.is_own),
                    mapping.attrs,
                    own,
                ),
                reading.value,
                reading.at,
                at in fresh,
                mapping.divisor,
                snapshot.starts[at] if at < len(snapshot.starts) else None,
                reading.window_start,
                (device.uuid, series.field, series.attrs),
            )
        for attribution in snapshot.layout.attributions.values():
            yield from self.derived(snapshot, attribution, fresh)

    def derived(
        self, snapshot: Snapshot, attribution: Attribution, fresh: set[int]
    ) -> Iterator[Candidate]:
        uuid = attribution.device.uuid
        device_series = {
            at: series
            for at, series in enumerate(snapshot.layout.series)
            if series.attribution.device.uuid == uuid
        }
        plain = {
            series.field: at
            for at, series in device_series.items()
            if not series.attrs and series.field in self.plan
        }
        values = {name: snapshot.readings[at].value for name, at in plain.items()}
        resource = self.resource(attribution)
        if self.semconv and {"memory_used_bytes", "memory_total_bytes"} <= plain.keys():
            used, total = values["memory_used_bytes"], values["memory_total_bytes"]
            at = plain["memory_used_bytes"]
            try:
                part = used / total if total else None
            except OverflowError:
                part = math.inf
            yield Candidate(
                resource,
                INSTRUMENTS["hw.gpu.memory.utilization"],
                self.device(attribution, typed=False, own=True),
                part,
                snapshot.readings[at].at,
                at in fresh,
            )
        inputs = {"gpu_up", "row_remap_failed", "row_remap_pending", "recovery_action"}
        known = inputs & plain.keys()
        if self.semconv and known:
            valid = {name for name in known if 0 <= values[name] < math.inf}
            values = {name: values[name] for name in valid}
            now = "ok"
            if values.get("row_remap_pending"):
                now = "predicted_failure"
            if values.get("recovery_action", 0) not in {0, 2}:
                now = "degraded"
            if values.get("recovery_action") == 2 or values.get("row_remap_failed"):
                now = "failed"
            if values.get("gpu_up") == 0:
                now = "failed"
            for state in STATES:
                yield Candidate(
                    resource,
                    INSTRUMENTS["hw.status"],
                    merged(
                        self.device(attribution, typed=True, own=True),
                        attribute_sets.constant_attributes(attribution.device),
                        [("hw.state", state)],
                    ),
                    int(state == now) if valid else None,
                    snapshot.at,
                    any(plain[name] in fresh for name in known),
                )
        if device_series and attribution.holders:
            yield Candidate(
                resource,
                Instrument(
                    f"podgpu{'.' if self.semconv else '_'}attribution"
                    f"{'.' if self.semconv else '_'}conflicts",
                    "gauge",
                    "",
                    True,
                    "Number of pods with conflicting claims on the device.",
                ),
                self.device(attribution, typed=False, own=True),
                attribution.conflicts,
                snapshot.at,
                not fresh.isdisjoint(device_series),
            )
        for holder in attribution.holders if device_series else ():
            yield from self.holding(
                snapshot, attribution, holder, not fresh.isdisjoint(device_series)
            )

    def holding(
        self, snapshot: Snapshot, attribution: Attribution, holder: Holder, fresh: bool
    ) -> Iterator[Candidate]:
        dots = self.semconv
        claim_attrs = (("evidence", holder.evidence.name.lower()), ("source", holder.source))
        source = snapshot.sources.get(holder.source)
        confirmed = source.confirmed_at if source else None
        age = None if confirmed is None else confirmed.seconds_until(snapshot.at)
        for dotted, page, unit, value, attrs, about in (
            ("info", "info", "", 1, claim_attrs, "Containers that hold the device; always 1."),
            (
                "share",
                "share",
                "",
                holder.share,
                (),
                "Share of the device that the container holds, from 0 to 1.",
            ),
            (
                "since_timestamp",
                "since_timestamp_seconds",
                "s",
                snapshot.at.wall_of(holder.since) / NS,
                (),
                "Unix time since which the container holds the device, as far as known.",
            ),
            (
                "age",
                "age_seconds",
                "s",
                age,
                (),
                "Time since the source of the claim last confirmed it.",
            ),
        ):
            if dotted == "share" and value is None:
                continue
            yield Candidate(
                attribute_sets.container_attributes(holder.subject, holder.pod, self.node, {}),
                Instrument(
                    f"podgpu.device.holder.{dotted}" if dots else f"podgpu_device_holder_{page}",
                    "gauge",
                    unit if dots else "",
                    dotted == "info",
                    about,
                ),
                merged(self.device(attribution, typed=False, own=True), attrs),
                value,
                snapshot.at,
                fresh,
            )

    def device(self, attribution: Attribution, typed: bool, own: bool) -> Pairs:
        device = attribution.device
        if self.semconv:
            return attribute_sets.semconv_attributes(device, typed=typed)
        return attribute_sets.dcgm_attributes(device, self.style, own=own)

    def resource(self, attribution: Attribution) -> Pairs:
        holder = only_holder(attribution.holders) if self.containers else None
        if holder is None:
            return attribute_sets.node_attributes(self.node, {})
        return attribute_sets.container_attributes(holder.subject, holder.pod, self.node, {})
