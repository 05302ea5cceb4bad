"""Cache the constant parts of points: resources, metrics and attributes, serialised."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from weakref import WeakKeyDictionary, WeakValueDictionary

from pipeline.exposition.naming import PageNaming
from pipeline.exposition.options import PageOptions
from pipeline.fields import FieldPlan
from pipeline.model import (
    Attribution,
    Attrs,
    Device,
    PartialRef,
    PodInfo,
    Series,
    only_holder,
)
from sinks.otlp.encoding import metric_names
from sinks.otlp.encoding.attribute_sets import (
    Pairs,
    container_attributes,
    dcgm_attributes,
    merged,
    node_attributes,
    semconv_attributes,
)
from sinks.otlp.encoding.metric_names import FieldMapping
from sinks.otlp.encoding.semconv import Instrument
from sinks.otlp.encoding.wire_format import (
    MetricTemplate,
    ResourceTemplate,
    SeriesTemplate,
    Wire,
    attributes,
)
from sinks.otlp.options import Names

_XID = "xid"


@dataclass(frozen=True, slots=True, eq=False)
class DeviceSeries:
    """A device, and the serialised parts of its points.

    Attributes:
        device: the device.
        resource: the resource of its readings.
        holders: the resources of its holders.
        attribute_bytes: serialised attributes, by (typed, own, additional attributes).
    """

    device: Device
    resource: ResourceTemplate
    holders: Sequence[ResourceTemplate]
    attribute_bytes: dict[tuple[bool, bool, Attrs], bytes] = field(default_factory=dict)


class SeriesCache:
    """Makes and caches templates of series.

    Attributes:
        metrics: serialised metrics, by instrument.
        resources: serialised resources, by attributes.

    Args:
        node: the node's name.
        plan: the fields to send.
        names: naming scheme of the metrics.
        containers: whether readings are in the resource of the device's only holder.
        resource: attributes that are added to every resource.
        wire: builds the bytes.
        previous: the cache to replace, with the same names and an equal wire. Its metrics and
            resources are shared, so that unchanged ones stay the same objects.
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
        self.wire = wire
        self._naming = PageNaming(PageOptions(hostname=False), plan, node)
        self.metrics: dict[Instrument, MetricTemplate] = (
            {} if previous is None else previous.metrics
        )
        self._mappings: dict[tuple[str, bool], FieldMapping] = {}
        self.resources: WeakValueDictionary[Pairs, ResourceTemplate] = (
            WeakValueDictionary() if previous is None else previous.resources
        )
        self._known: WeakKeyDictionary[Attribution, DeviceSeries] = WeakKeyDictionary()
        self.on_node = self._resource_template(node_attributes(node, resource))
        for instance in (False, True):
            for row in (plan.rows_of(each.name)[0] for each in plan.fields):
                mapping = (
                    metric_names.semconv_mapping(row, instance=instance)
                    if self.semconv
                    else metric_names.dcgm_mapping(row, self._naming)
                )
                if mapping is not None:
                    self.metric(mapping.instrument)  # the order of metrics is that of the plan
                    self._mappings[row.field.name, instance] = mapping

    def metric(self, instrument: Instrument) -> MetricTemplate:
        """Return the template of a metric."""
        found = self.metrics.get(instrument)
        if found is None:
            found = self.wire.metric_template(instrument, len(self.metrics))
            self.metrics[instrument] = found
        return found

    def reading(self, series: Series) -> tuple[SeriesTemplate, int | Fraction] | None:
        """Return the template and the divisor of a series; None if it is not sent."""
        mapping = self._mappings.get((series.field, series.attribution.device.mig is not None))
        if mapping is None:
            return None
        device_series = self.device_series(series.attribution)
        attrs = (*mapping.attrs, *self._reading_attributes(series))
        template = self.template(device_series, mapping.instrument, attrs, own=mapping.is_own)
        return template, mapping.divisor

    def template(
        self,
        device_series: DeviceSeries,
        instrument: Instrument,
        attrs: Attrs = (),
        resource: ResourceTemplate | None = None,
        *,
        own: bool = True,
    ) -> SeriesTemplate:
        """Return the template of a series of a device.

        Args:
            device_series: the device.
            instrument: the metric.
            attrs: additional attributes.
            resource: the resource; None for that of the device's readings.
            own: whether it is a metric of podgpu's own, not DCGM's.
        """
        return SeriesTemplate(
            resource or device_series.resource,
            self.metric(instrument),
            self.attribute_bytes(device_series, attrs, typed=instrument.typed, own=own),
        )

    def attribute_bytes(
        self,
        device_series: DeviceSeries,
        attrs: Attrs = (),
        *,
        typed: bool = False,
        own: bool = True,
    ) -> bytes:
        """Return the serialised attributes of a device.

        Args:
            device_series: the device.
            attrs: additional attributes.
            typed: whether the metric needs the attribute `hw.type`.
            own: whether it is a metric of podgpu's own, not DCGM's.
        """
        key = (typed, own, attrs)
        found = device_series.attribute_bytes.get(key)
        if found is None:
            pairs = self.device_attributes(device_series.device, typed=typed, own=own)
            found = device_series.attribute_bytes[key] = attributes(merged(pairs, attrs))
        return found

    def device_attributes(self, device: Device, *, typed: bool = False, own: bool = True) -> Pairs:
        """Return the attributes of a device; see `attribute_bytes`."""
        if self.semconv:
            return semconv_attributes(device, typed=typed)
        return dcgm_attributes(device, self._naming, own=own)

    def xid_attribute(self, code: str | int) -> tuple[str, str]:
        """Return the attribute for an XID code: `error.type` in the conventions, else `xid`."""
        return ("error.type", f"xid_{code}") if self.semconv else (_XID, str(code))

    def container(self, subject: PartialRef, pod: PodInfo | None) -> ResourceTemplate:
        """Return a container's resource, whether it holds a device or not."""
        return self._resource_template(container_attributes(subject, pod, self._node, self._extra))

    def device_series(self, attribution: Attribution) -> DeviceSeries:
        """Return a device with the resource of its readings."""
        found = self._known.get(attribution)
        if found is None:
            holder = only_holder(attribution.holders) if self._containers else None
            resource = (
                self.on_node if holder is None else self.container(holder.subject, holder.pod)
            )
            holders = [self.container(one.subject, one.pod) for one in attribution.holders]
            found = self._known[attribution] = DeviceSeries(attribution.device, resource, holders)
        return found

    def _reading_attributes(self, series: Series) -> Attrs:
        if series.field == "xid_errors":
            return tuple(
                self.xid_attribute(value) if name == _XID else (name, value)
                for name, value in series.attrs
            )
        return series.attrs

    def _resource_template(self, pairs: Pairs) -> ResourceTemplate:
        resource = self.resources.get(pairs)
        if resource is None:
            resource = self.resources[pairs] = ResourceTemplate(self.wire.resource_bytes(pairs))
        return resource
