"""What is the same in all points of a series, made once and kept as long as the series is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

from pipeline.exposition.naming import PageNaming
from pipeline.exposition.options import PageOptions
from pipeline.fields import FieldPlan
from pipeline.model import (
    Attribution,
    Attrs,
    Device,
    Holder,
    PartialRef,
    PodInfo,
    Series,
    only_holder,
)
from sinks.otlp.encoding import device_attributes, metric_names, resource_attributes
from sinks.otlp.encoding.attributes import Pairs, merged
from sinks.otlp.encoding.metric_names import FieldMapping
from sinks.otlp.encoding.semconv import STATUS, Instrument
from sinks.otlp.encoding.wire_format import (
    MetricTemplate,
    ResourceTemplate,
    SeriesTemplate,
    Wire,
    attributes,
)
from sinks.otlp.options import Names

_XID = "xid"
_UNSEEN: Any = object()


@dataclass(frozen=True, slots=True, eq=False)
class DeviceSeries:
    """A device and where its points stand.

    Attributes:
        device: the device.
        resource: the resource that its readings stand in.
        attribute_bytes: attributes that are serialised already, by those that are added to the
            device's.
        templates: of what is worked out for the device, by what it is.
    """

    device: Device
    resource: ResourceTemplate
    attribute_bytes: dict[tuple[bool, bool, Attrs], bytes] = field(default_factory=dict)
    templates: dict[tuple[str, str | int], SeriesTemplate] = field(default_factory=dict)


class SeriesCache:
    """Makes cells.

    Attributes:
        metrics: metrics that are serialised already.
        resources: the same of resources.

    Args:
        node: the node's name.
        plan: the fields that are told of.
        names: whose names the metrics have.
        containers: whether readings stand in the resource of the container that holds the device.
        resource: attributes that are added to every resource.
        wire: serialises.
        previous: those whose place these take, with the same names and a wire like this one: what
            has not changed is the same object.
    """

    def __init__(
        self,
        node: str,
        plan: FieldPlan,
        names: Names,
        *,
        containers: bool,
        resource: Mapping[str, str],
        wire: Wire,
        previous: "SeriesCache | None" = None,
    ) -> None:
        self.plan = plan
        self.semconv = names == "semconv"
        self._node = node
        self._containers = containers
        self._extra = resource
        self._wire = wire
        self._style = PageNaming(PageOptions(hostname=False), plan, node)
        self.metrics: dict[Instrument, MetricTemplate] = (
            {} if previous is None else previous.metrics
        )
        self._reading_templates: dict[tuple[str, bool], tuple[FieldMapping, MetricTemplate]] = {}
        self.resources: WeakValueDictionary[Pairs, ResourceTemplate] = (
            WeakValueDictionary() if previous is None else previous.resources
        )
        self._known: WeakKeyDictionary[Attribution, DeviceSeries] = WeakKeyDictionary()
        self._series: WeakKeyDictionary[Series, tuple[SeriesTemplate, int] | None] = (
            WeakKeyDictionary()
        )
        self.on_node = self._resource_template(resource_attributes.of_node(node, resource))
        for instance in (False, True):
            for row in plan.rows:
                told = (
                    metric_names.semconv_mapping(row, instance=instance)
                    if self.semconv
                    else metric_names.dcgm_mapping(row, self._style)
                )
                if told is not None:
                    column = self.metric(told.instrument)
                    self._reading_templates[row.field.name, instance] = (told, column)

    def metric(self, instrument: Instrument) -> MetricTemplate:
        """Return a metric, serialised."""
        found = self.metrics.get(instrument)
        if found is None:
            found = self._wire.column(instrument, len(self.metrics))
            self.metrics[instrument] = found
        return found

    def reading(self, series: Series) -> tuple[SeriesTemplate, int] | None:
        """Return a series' cell, and what its values are divided by; None if it isn't told of."""
        cached = self._series.get(series, _UNSEEN)
        if cached is not _UNSEEN:
            return cast("tuple[SeriesTemplate, int] | None", cached)
        found = self._reading_templates.get(
            (series.field, series.attribution.device.mig is not None)
        )
        made = None
        if found is not None:
            told, column = found
            known = self.device_series(series.attribution)
            attrs = (*told.attrs, *self._reading_attributes(series))
            back = self._attribute_bytes(known, attrs, typed=told.instrument.typed, own=told.is_own)
            made = (SeriesTemplate(known.resource, column, back), told.divisor)
        self._series[series] = made
        return made

    def status(self, device_series: DeviceSeries, state: str) -> SeriesTemplate:
        """Return the cell of a state that a device can be in."""
        key = (STATUS.name, state)
        cell = device_series.templates.get(key)
        if cell is None:
            pairs = merged(
                device_attributes.semconv_attributes(device_series.device, typed=True),
                device_attributes.constant_attributes(device_series.device),
                [("hw.state", state)],
            )
            cell = SeriesTemplate(device_series.resource, self.metric(STATUS), attributes(pairs))
            device_series.templates[key] = cell
        return cell

    def of_device(self, device_series: DeviceSeries, instrument: Instrument) -> SeriesTemplate:
        """Return the cell of something that is worked out for a device, in its readings' place."""
        key = (instrument.name, 0)
        cell = device_series.templates.get(key)
        if cell is None:
            cell = SeriesTemplate(
                device_series.resource, self.metric(instrument), self.own_attributes(device_series)
            )
            device_series.templates[key] = cell
        return cell

    def holding(
        self,
        device_series: DeviceSeries,
        at: int,
        holder: Holder,
        instrument: Instrument,
        attrs: Attrs = (),
    ) -> SeriesTemplate:
        """Return the cell of something that is said of a device's holder, in its resource.

        Args:
            device_series: the device.
            at: which of its holders it is.
            holder: that holder.
            instrument: what is said.
            attrs: attributes that it has besides the device's.
        """
        key = (instrument.name, at)
        cell = device_series.templates.get(key)
        if cell is None:
            back = self._attribute_bytes(device_series, attrs, typed=False, own=True)
            cell = SeriesTemplate(self._holder_resource(holder), self.metric(instrument), back)
            device_series.templates[key] = cell
        return cell

    def own_attributes(self, device_series: DeviceSeries, attrs: Attrs = ()) -> bytes:
        """Return the attributes that name a device in podgpu's own metrics, serialised.

        Args:
            device_series: the device.
            attrs: attributes that come behind them.
        """
        return self._attribute_bytes(device_series, attrs, typed=False, own=True)

    def device_attributes(self, device: Device) -> Pairs:
        """Return the attributes that name a device in what is podgpu's own."""
        if self.semconv:
            return device_attributes.semconv_attributes(device, typed=False)
        return device_attributes.dcgm_attributes(device, self._style, own=True)

    def xid_attribute(self, code: str | int) -> tuple[str, str]:
        """Return the attribute that is an XID's code; by the conventions the type of an error."""
        return ("error.type", f"xid_{code}") if self.semconv else (_XID, str(code))

    def container(self, subject: PartialRef, pod: PodInfo | None) -> ResourceTemplate:
        """Return a container's resource, whether it holds a device or not."""
        return self._resource_template(
            resource_attributes.of_subject(subject, pod, self._node, self._extra)
        )

    def device_series(self, attribution: Attribution) -> DeviceSeries:
        """Return what is known of a device that somebody may hold."""
        found = self._known.get(attribution)
        if found is None:
            holder = only_holder(attribution.holders) if self._containers else None
            place = self.on_node if holder is None else self._holder_resource(holder)
            found = self._known[attribution] = DeviceSeries(attribution.device, place)
        return found

    def _reading_attributes(self, series: Series) -> Attrs:
        """Return a reading's own attributes."""
        if series.field == "xid_errors":
            return tuple(
                self.xid_attribute(value) if name == _XID else (name, value)
                for name, value in series.attrs
            )
        return series.attrs

    def _attribute_bytes(
        self, device_series: DeviceSeries, attrs: Attrs, *, typed: bool, own: bool
    ) -> bytes:
        key = (typed, own, attrs)
        back = device_series.attribute_bytes.get(key)
        if back is None:
            device = device_series.device
            named = (
                device_attributes.semconv_attributes(device, typed=typed)
                if self.semconv
                else device_attributes.dcgm_attributes(device, self._style, own=own)
            )
            back = device_series.attribute_bytes[key] = attributes(merged(named, attrs))
        return back

    def _holder_resource(self, holder: Holder) -> ResourceTemplate:
        return self.container(holder.subject, holder.pod)

    def _resource_template(self, pairs: Pairs) -> ResourceTemplate:
        place = self.resources.get(pairs)
        if place is None:
            place = self.resources[pairs] = ResourceTemplate(self._wire.resource_bytes(pairs))
        return place
