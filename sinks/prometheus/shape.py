"""A page without its values: made once per layout, filled in once per snapshot.

Between two rounds of readings nothing but values changes. So a layout's lines are kept as a list in
which every second place is a value's, and a page is one slice assignment and one join.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import compress, groupby
from operator import attrgetter, itemgetter

import orjson

from pipeline.fields import Field, FieldPlan, by_name
from pipeline.model import Attrs, Layout, Reading, ResourceCount, Value
from sinks.prometheus.labels import BASE_LABELS, CONTAINER_LABELS, LabelCache
from sinks.prometheus.text import Format, header, labels, number

_VALUE = itemgetter(Reading._fields.index("value"))
_FIELD = attrgetter("field")
_TAKEN = frozenset((*BASE_LABELS, *CONTAINER_LABELS))

INFO_FAMILIES = (
    ("podgpu_device_info", "GPUs and MIG instances; always 1."),
    ("podgpu_device_holder_info", "Containers that hold the device, one series each; always 1."),
    (
        "podgpu_device_holder_since_timestamp_seconds",
        "Since when the container holds the device, as far as is known, in Unix time.",
    ),
    ("podgpu_device_holder_share", "Part of the device that the container holds, from 0 to 1."),
    ("podgpu_pod_info", "Pods that hold a device; always 1."),
    (
        "podgpu_attribution_conflicts",
        "Pods whose claims on the device contradict one another's.",
    ),
    (
        "podgpu_resource_devices",
        "Devices behind an extended resource: present, advertised by the kubelet, allocated.",
    ),
)


class Shape:
    """The lines of one layout.

    Args:
        layout: what there is to show.
        plan: fields that are not in it are left out.
        cache: labels that are rendered already.
    """

    def __init__(self, layout: Layout, plan: FieldPlan, cache: LabelCache) -> None:
        self.layout = layout
        known = {uuid: cache[held] for uuid, held in layout.attributions.items()}
        self._lines: list[bytes] = []
        self._families: list[tuple[int, Field]] = []
        self._scales: list[tuple[int, int, int]] = []
        shown: list[bool] = []
        for name, group in groupby(layout.series, _FIELD):
            field = by_name(name) if name in plan else None
            if field is None:
                shown += [False for _ in group]
                continue
            start, metric = len(self._lines), field.metric.encode()
            for series in group:
                attrs = _attrs(series.attrs)
                shown.append(attrs is not None)
                if attrs is not None:
                    device = known[series.attribution.device.uuid]
                    front = device.front if field.dcgm else device.own
                    line = b"%b{%b%b%b} " % (metric, front, attrs, device.back)
                    self._lines.append(line)
            self._families.append((start, field))
            if field.dcgm_divisor != 1:
                self._scales.append((start, len(self._lines), field.dcgm_divisor))
        self._shown = None if all(shown) else shown
        self._infos = (
            b"".join(rendered.device for rendered in known.values()),
            b"".join(line for rendered in known.values() for line in rendered.holders),
            b"".join(line for rendered in known.values() for line in rendered.since),
            b"".join(line for rendered in known.values() for line in rendered.shares),
            # A pod that holds several devices is told of once.
            b"".join({line: None for rendered in known.values() for line in rendered.pods}),
            b"".join(rendered.conflicts for rendered in known.values()),
            b"".join(_resources(layout.resources)),
        )
        self._templates: dict[Format, list[bytes]] = {}

    def numbers(self, readings: Sequence[Reading]) -> tuple[list[bytes], int]:
        """Return the values as text, and how many are no numbers: those are empty.

        Args:
            readings: in the order of the layout's series.
        """
        picked = readings if self._shown is None else compress(readings, self._shown)
        values: list[Value] = list(map(_VALUE, picked))
        for start, stop, divisor in self._scales:
            values[start:stop] = [_scaled(value, divisor) for value in values[start:stop]]
        if not values:
            return [], 0
        try:
            text = orjson.dumps(values)
        except TypeError:  # an integer of more than 64 bits
            return _one_by_one(values)
        # orjson writes null, true or false for what is no number.
        if b"u" in text or b"s" in text:
            return _one_by_one(values)
        return text[1:-1].split(b","), 0

    def body(self, form: Format, numbers: list[bytes], gaps: int) -> bytes:
        """Return the page, but for podgpu's own metrics.

        Args:
            form: the exposition format.
            numbers: from `numbers`.
            gaps: how many of them are empty.
        """
        template = self._templates.get(form)
        if template is None:
            template = self._templates[form] = self._template(form)
        if gaps:
            return self._with_gaps(form, numbers)
        template[1::2] = numbers
        return b"".join(template)

    def _template(self, form: Format) -> list[bytes]:
        heads = dict(self._heads(form))
        template: list[bytes] = []
        newline = b""
        for at, line in enumerate(self._lines):
            template += (newline + heads.get(at, b"") + line, b"")
            newline = b"\n"
        template.append(newline + self._info(form))
        return template

    def _with_gaps(self, form: Format, numbers: list[bytes]) -> bytes:
        """Return the page without the series that have no number."""
        heads = dict(self._heads(form))
        parts: list[bytes] = []
        head = b""
        for at, (line, value) in enumerate(zip(self._lines, numbers, strict=True)):
            head = heads.get(at, head)
            if value:
                parts += (head, line, value, b"\n")
                head = b""
        parts.append(self._info(form))
        return b"".join(parts)

    def _heads(self, form: Format) -> list[tuple[int, bytes]]:
        return [
            (at, header(form, field.metric, field.type, _about(field)))
            for at, field in self._families
        ]

    def _info(self, form: Format) -> bytes:
        return b"".join(
            header(form, name, "gauge", about) + lines
            for (name, about), lines in zip(INFO_FAMILIES, self._infos, strict=True)
            if lines
        )


def _resources(resources: Mapping[str, ResourceCount]) -> Iterator[bytes]:
    for name, count in resources.items():
        for state in ("present", "advertised", "allocated"):
            value = getattr(count, state)
            if value is not None:
                pairs = labels((("resource", name), ("state", state)))
                yield b"podgpu_resource_devices{%b} %d\n" % (pairs, value)


def _attrs(attrs: Attrs) -> bytes | None:
    """Return attributes as labels after a comma; None if a name is malformed or there twice."""
    if not attrs:
        return b""
    names = {name for name, _ in attrs}
    if len(names) < len(attrs) or not _TAKEN.isdisjoint(names):
        return None
    if not all(name.isascii() and name.isidentifier() for name in names):
        return None
    return b"," + labels(attrs)


def _about(field: Field) -> str:
    return f"{field.help} In {field.dcgm_unit}." if field.dcgm_unit else field.help


def _scaled(value: Value, divisor: int) -> Value:
    """Divide; what comes out whole stays an integer."""
    if isinstance(value, int) and not value % divisor:
        return value // divisor
    return value / divisor


def _one_by_one(values: list[Value]) -> tuple[list[bytes], int]:
    numbers = [number(value) or b"" for value in values]
    return numbers, numbers.count(b"")
