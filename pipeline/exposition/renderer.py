"""Render the newest snapshot as a page, when the page is requested.

A template is built once per layout, and filled with values once per snapshot. Between two snapshots
with the same layout only the values change. Therefore a template is a list in which every second
item is a value. To build a page takes only one slice assignment and one join.
"""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import groupby
from operator import attrgetter, itemgetter

import orjson

from pipeline.base.telemetry import Meter
from pipeline.exposition.holder_labels import LabelCache, Rendered
from pipeline.exposition.job_labels import JobLabels
from pipeline.exposition.mig_copies import MigCopies
from pipeline.exposition.naming import PageNaming
from pipeline.exposition.options import PageOptions
from pipeline.exposition.owner_labels import INFO_FAMILIES as OWNER_INFO_FAMILIES
from pipeline.exposition.process_shares import BY_PROCESS, ProcessShares
from pipeline.exposition.text_format import Format, Kind, header, labels, number
from pipeline.exposition.topology_families import TopologyFamilies
from pipeline.exposition.usage_metrics import UsageFamilies
from pipeline.exposition.xid_families import XidInfo, xid_labels
from pipeline.fields import FieldPlan
from pipeline.model import (
    NS,
    Attrs,
    Instant,
    Layout,
    Reading,
    ResourceCount,
    Snapshot,
    Usage,
    Value,
)

_VALUE = itemgetter(Reading._fields.index("value"))
_FIELD = attrgetter("field")
_WITH_CODE = frozenset({"DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR"})
_SINCE = "podgpu_device_holder_since_timestamp_seconds"

INFO_FAMILIES = (
    ("podgpu_device_info", "GPUs and MIG instances; always 1."),
    ("podgpu_device_board_info", "Boards, with constant properties as labels; always 1."),
    ("podgpu_device_holder_info", "Containers that hold the device, one series each; always 1."),
    (
        "podgpu_device_access_info",
        "Containers that have access to the device but do not hold it; always 1.",
    ),
    (_SINCE, "Unix time since which the container holds the device, as far as known."),
    ("podgpu_device_holder_share", "Share of the device that the container holds, from 0 to 1."),
    ("podgpu_pod_info", "Pods that hold a device; always 1."),
    *OWNER_INFO_FAMILIES,
    ("podgpu_attribution_conflicts", "Number of pods with conflicting claims on the device."),
    (
        "podgpu_resource_devices",
        "Devices of an extended resource: present, advertised by the kubelet, allocated.",
    ),
)


class PageRenderer:
    """Renders the newest snapshot as a page.

    Args:
        options: options of the page.
        plan: fields on the page; other fields are left out.
        node: name of the node.
        meter: meter of the sink, which counts readings without a finite value once per snapshot.
    """

    def __init__(self, options: PageOptions, plan: FieldPlan, node: str, meter: Meter) -> None:
        self._plan = plan
        self._meter = meter
        naming = PageNaming(options, plan, node)
        self._labels = LabelCache(naming)
        self._topology = TopologyFamilies(naming)
        self._usage = UsageFamilies(self._labels)
        self._xids = XidInfo(naming)
        self._snapshot: Snapshot | None = None
        self._template: PageTemplate | None = None
        self._values: tuple[list[bytes], int, int] | None = None

    def show(self, snapshot: Snapshot | None) -> None:
        """Set the newest snapshot; None before the first."""
        self._snapshot = snapshot
        self._values = None

    def body(self, form: Format) -> bytes:
        """Return the page without its tail; empty before the first snapshot. Not cached."""
        snapshot = self._snapshot
        if snapshot is None:
            return b""
        if self._template is None or not self._template.fits(snapshot):
            self._template = PageTemplate(snapshot.layout, snapshot.at, self._plan, self._labels)
        if self._values is None:
            self._values = self._template.format_values(snapshot.readings, snapshot.usage)
            if gaps := self._values[1]:
                self._meter.add("podgpu_sink_dropped_total", gaps, reason="not_finite")
        return b"".join(
            (
                self._template.body(form, *self._values),
                self._topology.body(form, snapshot),
                self._usage.body(form, snapshot),
                self._xids.body(form, snapshot),
            )
        )


class PageTemplate:
    """The lines of one layout.

    Args:
        layout: the series and attributions to show.
        now: time of the snapshot, from which the offset of the wall clock is taken.
        plan: fields on the page; other fields are left out.
        cache: the rendered labels of attributions.
    """

    def __init__(self, layout: Layout, now: Instant, plan: FieldPlan, cache: LabelCache) -> None:
        self.layout = layout
        self._clock_offset_ns = now.wall_ns - now.mono_ns
        naming = cache.naming
        rendered_by_device = {uuid: cache[held] for uuid, held in layout.attributions.items()}
        self._copies = MigCopies(layout.attributions, naming.options)
        self._shares = ProcessShares()
        job_labels = JobLabels(layout.jobs)
        lines: list[bytes] = []
        readings: list[int] = []
        self._families: list[tuple[int, str, Kind, str]] = []  # with the index of the first line
        self._scales: list[tuple[int, int, int | Fraction]] = []
        self._codes: list[tuple[int, int]] = []
        stop = 0
        for name, group in groupby(layout.series, _FIELD):
            members = list(group)
            begin, stop = stop, stop + len(members)
            for row in plan.rows_of(name):
                start, family = len(lines), naming.metric(row)
                own = naming.is_own(family)
                with_code = family in _WITH_CODE
                line = family.encode() + (b"{%b%b%b" if with_code else b"{%b%b%b} ")
                for at, series in enumerate(members, begin):
                    for uuid in self._copies.devices(series.attribution.device, row.field, own=own):
                        device = rendered_by_device[uuid]
                        device_labels = device.own_labels if own else device.device_labels
                        attrs = _attrs(series.attrs, naming, device.pod_label_names)
                        if attrs is None:
                            continue
                        for job in job_labels.of_reading(uuid, own=own, named=device.names_job):
                            holder_labels = self._holder_labels(name, uuid, device, len(lines))
                            lines += [
                                line % (device_labels, attrs, one + job) for one in holder_labels
                            ]
                    readings += [at] * (len(lines) - len(readings))
                kind: Kind = "counter" if (row.type or row.field.type) == "counter" else "gauge"
                self._families.append((start, family, kind, naming.help_text(row)))
                divisor = row.field.unit_in(family).divisor
                if divisor != 1:
                    self._scales.append((start, len(lines), divisor))
                if with_code:
                    self._codes.append((start, len(lines)))
        self._lines = lines
        # For each line, the index of its reading; None if line and reading correspond one to one.
        self._reading_of_line = None if readings == list(range(stop)) else readings
        info: dict[str, list[bytes]] = {name: [] for name, _ in INFO_FAMILIES}
        for rendered in rendered_by_device.values():
            for name, info_lines in rendered.lines.items():
                info[name] += info_lines
            info[_SINCE] += [
                b"%b{%b} %.3f\n" % (_SINCE.encode(), text, now.wall_of(since) / NS)
                for text, since in rendered.since
            ]
        info["podgpu_resource_devices"] += _resources(layout.resources)
        # A pod that holds several devices has only one line.
        self._info_lines = [b"".join(dict.fromkeys(info_lines)) for info_lines in info.values()]
        self._templates: dict[Format, list[bytes]] = {}

    def _holder_labels(self, field: str, uuid: str, device: Rendered, line: int) -> Sequence[bytes]:
        """Return the labels of the holders for which a reading of a device is shown.

        Args:
            field: name of the field.
            uuid: uuid of the device.
            device: its rendered labels.
            line: index of the first line of the reading.
        """
        if not device.shares or field not in BY_PROCESS or uuid in self._copies.carriers:
            return device.holder_labels
        self._shares.add(line + 1, uuid, field, tuple(device.shares.values()))
        return (device.no_holder_labels, *device.shares)

    def fits(self, snapshot: Snapshot) -> bool:
        """Whether the template is valid for a snapshot: same layout, and same wall clock offset."""
        clock_offset_ns = snapshot.at.wall_ns - snapshot.at.mono_ns
        return self.layout is snapshot.layout and self._clock_offset_ns == clock_offset_ns

    def format_values(
        self, readings: Sequence[Reading], usage: Usage | None = None
    ) -> tuple[list[bytes], int, int]:
        """Return the values as texts, and how many of them are not finite numbers or unknown.

        The texts of these are empty.

        Args:
            readings: the readings, in the order of the layout's series.
            usage: the usage accounts; None if no source samples usage.
        """
        picked = (
            readings
            if self._reading_of_line is None
            else [readings[at] for at in self._reading_of_line]
        )
        values: list[Value] = list(map(_VALUE, picked))
        unknown: list[int] = []
        for at, part in self._shares.values(usage):
            values[at] = 0 if part is None else part
            if part is None:
                unknown.append(at)
        for start, stop, divisor in self._scales:
            values[start:stop] = [_scaled(value, divisor) for value in values[start:stop]]
        numbers, gaps = _format_numbers(values)
        for start, stop in self._codes:
            numbers[start:stop] = [code and xid_labels(code) for code in numbers[start:stop]]
        for at in unknown:
            numbers[at] = b""
        return numbers, gaps, len(unknown)

    def body(self, form: Format, numbers: list[bytes], gaps: int, unknown: int = 0) -> bytes:
        """Return the lines of the layout, without topology, usage and podgpu's own metrics.

        Args:
            form: the exposition format.
            numbers: the texts from `format_values`.
            gaps: number of values that are not finite.
            unknown: number of values that are unknown.
        """
        template = self._templates.get(form)
        if template is None:
            template = self._templates[form] = self._template(form)
        if gaps or unknown:
            return self._with_gaps(form, numbers)
        template[1::2] = numbers
        return b"".join(template)

    def _template(self, form: Format) -> list[bytes]:
        heads = self._heads(form)
        template: list[bytes] = []
        newline = b""
        for at, line in enumerate(self._lines):
            template += (newline + heads.get(at, b"") + line, b"")
            newline = b"\n"
        template.append(newline + self._info(form))
        return template

    def _with_gaps(self, form: Format, numbers: list[bytes]) -> bytes:
        """Return the page without the series that have no value."""
        heads = self._heads(form)
        parts: list[bytes] = []
        head = b""
        for at, (line, value) in enumerate(zip(self._lines, numbers, strict=True)):
            head = heads.get(at, head)
            if value:
                parts += (head, line, value, b"\n")
                head = b""
        parts.append(self._info(form))
        return b"".join(parts)

    def _heads(self, form: Format) -> dict[int, bytes]:
        return {start: header(form, *family) for start, *family in self._families}

    def _info(self, form: Format) -> bytes:
        return b"".join(
            header(form, name, "gauge", about) + lines
            for (name, about), lines in zip(INFO_FAMILIES, self._info_lines, strict=True)
            if lines
        )


def _resources(resources: Mapping[str, ResourceCount]) -> Iterator[bytes]:
    for name, count in resources.items():
        for state in ("present", "advertised", "allocated"):
            value = getattr(count, state)
            if value is not None:
                pairs = labels((("resource", name), ("state", state)))
                yield b"podgpu_resource_devices{%b} %d\n" % (pairs, value)


def _attrs(attrs: Attrs, naming: PageNaming, extra: frozenset[str]) -> bytes | None:
    """Return attributes as labels after a comma; None if a name is invalid or not unique.

    Args:
        attrs: attributes of a series.
        naming: the names on the page, for the reserved names.
        extra: further reserved names.
    """
    if not attrs:  # nearly always
        return b""
    names = {name for name, _ in attrs}
    if len(names) < len(attrs) or not (naming.fixed.isdisjoint(names) and extra.isdisjoint(names)):
        return None
    if not all(name.isascii() and name.isidentifier() for name in names):
        return None
    return b"," + labels(attrs)


def _scaled(value: Value, divisor: int | Fraction) -> Value:
    """Divide a value. An integer result stays an integer."""
    if isinstance(value, int) and not value % divisor:
        return value // divisor
    return float(value / divisor)


def _format_numbers(values: list[Value]) -> tuple[list[bytes], int]:
    if not values:
        return [], 0
    try:
        text = orjson.dumps(values)
    except TypeError:  # an integer of more than 64 bits
        return _one_by_one(values)
    # orjson writes null for a float that is not finite, and true or false for a bool.
    if b"u" in text or b"s" in text:
        return _one_by_one(values)
    return text[1:-1].split(b","), 0


def _one_by_one(values: list[Value]) -> tuple[list[bytes], int]:
    numbers = [number(value) or b"" for value in values]
    return numbers, numbers.count(b"")
