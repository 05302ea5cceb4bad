"""What is the same in all points of a series, made once and kept as long as the series is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

from pipeline.exposition.naming import Style
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
    sole,
)
from sinks.otlp.encoding import device_attributes, metric_names, resource_attributes
from sinks.otlp.encoding.attributes import Pairs, merged
from sinks.otlp.encoding.metric_names import Told
from sinks.otlp.encoding.semconv import STATUS, Instrument
from sinks.otlp.encoding.wire_format import Cell, Column, Place, Wire, attributes
from sinks.otlp.options import Names

_XID = "xid"
_UNSEEN: Any = object()


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """A device and where its points stand.

    Attributes:
        device: the device.
        place: the resource that its readings stand in.
        backs: attributes that are serialised already, by those that are added to the device's.
        cells: of what is worked out for the device, by what it is.
    """

    device: Device
    place: Place
    backs: dict[tuple[bool, bool, Attrs], bytes] = field(default_factory=dict)
    cells: dict[tuple[str, str | int], Cell] = field(default_factory=dict)


class Cells:
    """Makes cells.

    Attributes:
        columns: metrics that are serialised already.
        places: the same of resources.

    Args:
        node: the node's name.
        plan: the fields that are told of.
        names: whose names the metrics have.
        containers: whether readings stand in the resource of the container that holds the device.
        resource: attributes that are added to every resource.
        wire: serialises.
        former: those whose place these take, with the same names and a wire like this one: what has
            not changed is the same object.
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
        former: "Cells | None" = None,
    ) -> None:
        self.plan = plan
        self.semconv = names == "semconv"
        self._node = node
        self._containers = containers
        self._extra = resource
        self._wire = wire
        self._style = Style(PageOptions(hostname=False), plan, node)
        self.columns: dict[Instrument, Column] = {} if former is None else former.columns
        self._told: dict[tuple[str, bool], tuple[Told, Column]] = {}
        self.places: WeakValueDictionary[Pairs, Place] = (
            WeakValueDictionary() if former is None else former.places
        )
        self._known: WeakKeyDictionary[Attribution, Known] = WeakKeyDictionary()
        self._series: WeakKeyDictionary[Series, tuple[Cell, int] | None] = WeakKeyDictionary()
        self.on_node = self._place(resource_attributes.of_node(node, resource))
        for instance in (False, True):
            for row in plan.rows:
                told = (
                    metric_names.semconv(row, instance=instance)
                    if self.semconv
                    else metric_names.dcgm(row, self._style)
                )
                if told is not None:
                    column = self.column(told.instrument)
                    self._told[row.field.name, instance] = (told, column)

    def column(self, instrument: Instrument) -> Column:
        """Return a metric, serialised."""
        found = self.columns.get(instrument)
        if found is None:
            found = self._wire.column(instrument, len(self.columns))
            self.columns[instrument] = found
        return found

    def reading(self, series: Series) -> tuple[Cell, int] | None:
        """Return a series' cell, and what its values are divided by; None if it isn't told of."""
        cached = self._series.get(series, _UNSEEN)
        if cached is not _UNSEEN:
            return cast("tuple[Cell, int] | None", cached)
        found = self._told.get((series.field, series.attribution.device.mig is not None))
        made = None
        if found is not None:
            told, column = found
            known = self.known(series.attribution)
            attrs = (*told.attrs, *self._own(series))
            back = self._back(known, attrs, typed=told.instrument.typed, own=told.own)
            made = (Cell(known.place, column, back), told.divisor)
        self._series[series] = made
        return made

    def status(self, known: Known, state: str) -> Cell:
        """Return the cell of a state that a device can be in."""
        key = (STATUS.name, state)
        cell = known.cells.get(key)
        if cell is None:
            pairs = merged(
                device_attributes.semconv(known.device, typed=True),
                device_attributes.constant(known.device),
                [("hw.state", state)],
            )
            cell = Cell(known.place, self.column(STATUS), attributes(pairs))
            known.cells[key] = cell
        return cell

    def of_device(self, known: Known, instrument: Instrument) -> Cell:
        """Return the cell of something that is worked out for a device, in its readings' place."""
        key = (instrument.name, 0)
        cell = known.cells.get(key)
        if cell is None:
            cell = Cell(known.place, self.column(instrument), self.own(known))
            known.cells[key] = cell
        return cell

    def holding(
        self, known: Known, at: int, holder: Holder, instrument: Instrument, attrs: Attrs = ()
    ) -> Cell:
        """Return the cell of something that is said of a device's holder, in its resource.

        Args:
            known: the device.
            at: which of its holders it is.
            holder: that holder.
            instrument: what is said.
            attrs: attributes that it has besides the device's.
        """
        key = (instrument.name, at)
        cell = known.cells.get(key)
        if cell is None:
            back = self._back(known, attrs, typed=False, own=True)
            cell = Cell(self._container(holder), self.column(instrument), back)
            known.cells[key] = cell
        return cell

    def own(self, known: Known, attrs: Attrs = ()) -> bytes:
        """Return the attributes that name a device in podgpu's own metrics, serialised.

        Args:
            known: the device.
            attrs: attributes that come behind them.
        """
        return self._back(known, attrs, typed=False, own=True)

    def named(self, device: Device) -> Pairs:
        """Return the attributes that name a device in what is podgpu's own."""
        if self.semconv:
            return device_attributes.semconv(device, typed=False)
        return device_attributes.dcgm(device, self._style, own=True)

    def xid(self, code: str | int) -> tuple[str, str]:
        """Return the attribute that is an XID's code; by the conventions the type of an error."""
        return ("error.type", f"xid_{code}") if self.semconv else (_XID, str(code))

    def container(self, subject: PartialRef, pod: PodInfo | None) -> Place:
        """Return a container's resource, whether it holds a device or not."""
        return self._place(resource_attributes.of_subject(subject, pod, self._node, self._extra))

    def known(self, attribution: Attribution) -> Known:
        """Return what is known of a device that somebody may hold."""
        found = self._known.get(attribution)
        if found is None:
            holder = sole(attribution.holders) if self._containers else None
            place = self.on_node if holder is None else self._container(holder)
            found = self._known[attribution] = Known(attribution.device, place)
        return found

    def _own(self, series: Series) -> Attrs:
        """Return a reading's own attributes."""
        if series.field == "xid_errors":
            return tuple(
                self.xid(value) if name == _XID else (name, value) for name, value in series.attrs
            )
        return series.attrs

    def _back(self, known: Known, attrs: Attrs, *, typed: bool, own: bool) -> bytes:
        key = (typed, own, attrs)
        back = known.backs.get(key)
        if back is None:
            device = known.device
            named = (
                device_attributes.semconv(device, typed=typed)
                if self.semconv
                else device_attributes.dcgm(device, self._style, own=own)
            )
            back = known.backs[key] = attributes(merged(named, attrs))
        return back

    def _container(self, holder: Holder) -> Place:
        return self.container(holder.subject, holder.pod)

    def _place(self, pairs: Pairs) -> Place:
        place = self.places.get(pairs)
        if place is None:
            place = self.places[pairs] = Place(self._wire.place(pairs))
        return place
