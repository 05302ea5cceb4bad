"""Converts a page to devices and readings."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, Literal, TypeAlias

from pipeline.base.safe_text import line
from pipeline.fields import CATALOGUE, Field, FieldPlan
from pipeline.fields.value_bounds import is_blank, possible
from pipeline.model import Attrs, Device, Instant, Reading, Value
from sources.dcgm.exposition_parser import Malformed, read
from sources.dcgm.page_devices import COPY, LineDevice, PageDevices, about_a_device, device_of

Reason: TypeAlias = Literal["malformed", "no_device", "blank", "out_of_range", "contradictory"]

_SHOWN: Final = 120
_OURS: Final = "podgpu_"


@dataclass(slots=True)
class Page:
    """The content of a page.

    Attributes:
        devices: the devices, in the order of the page.
        readings: readings of the requested fields.
        dropped: number of dropped values, by reason.
        examples: the line of the first dropped value, by reason.
        empty: whether the page has no metric of a GPU exporter.
    """

    devices: tuple[Device, ...] = ()
    readings: tuple[Reading, ...] = ()
    dropped: Counter[Reason] = field(default_factory=Counter)
    examples: dict[Reason, str] = field(default_factory=dict)
    empty: bool = True

    def drop(self, reason: Reason, number: int, text: str) -> None:
        """Count a dropped value."""
        self.dropped[reason] += 1
        self.examples.setdefault(reason, f"line {number}: {line(text, _SHOWN)}")


@dataclass(slots=True)
class _Values:
    """The values of the lines for one reading, and the number of the first line."""

    number: int
    of_device: list[Value] = field(default_factory=list)
    copies: set[Value] = field(default_factory=set)


def parse_page(data: bytes, plan: FieldPlan, at: Instant, good_for_ns: int) -> Page:
    """Parse a page. It raises no errors, whatever the bytes are.

    Args:
        data: the page.
        plan: the requested fields.
        at: when the page was read.
        good_for_ns: how long its readings are valid, in nanoseconds.
    """
    page, gpus, samples = Page(), PageDevices(), []
    line_devices: dict[int, LineDevice | None] = {}
    for found in read(data):
        page.empty = False
        if isinstance(found, Malformed):
            page.drop("malformed", found.number, found.text)
            continue
        labels_id = id(found.labels)
        if labels_id not in line_devices:
            device = line_devices[labels_id] = (
                device_of(found.labels) if about_a_device(found.labels) else None
            )
            if device is not None:
                gpus.add(device)
        # Every sample is kept, so that its labels keep their id.
        samples.append((found, line_devices[labels_id]))
    names = {found.name for found, _ in samples}
    typed = any(name.startswith(_OURS) for name in names)
    ignored = _AMBIGUOUS if names.isdisjoint(_BASE_UNITS) else ()
    values_of: dict[tuple[str, str, Attrs], _Values] = {}
    for found, device in samples:
        is_known = found.name not in ignored
        mapping = field_of(found.name, found.type, typed=typed) if is_known else None
        if device is None or mapping is None or mapping[0].name not in plan:
            continue
        wanted, divisor = mapping
        value = found.value * divisor.numerator
        if divisor.denominator != 1:
            value /= divisor.denominator
        # dcgm-exporter repeats what only the whole GPU has for each MIG instance.
        repeated = device.gi is not None and not wanted.mig
        uuid = gpus.find(device)
        if repeated:
            uuid = gpus.find(device.gpu)
        if uuid is None:
            page.drop("no_device", found.number, found.name)
        elif is_blank(found.value):
            page.drop("blank", found.number, found.name)
        elif not possible(wanted, value):
            page.drop("out_of_range", found.number, f"{found.name} {found.value}")
        else:
            labels = found.labels
            attrs = tuple(
                [(name, labels[name]) for name in sorted(wanted.attrs) if labels.get(name)]
            )
            key = (uuid, wanted.name, attrs)
            values = values_of.setdefault(key, _Values(found.number))
            if repeated or COPY.isdisjoint(labels):
                values.of_device.append(value)
            else:
                values.copies.add(value)
    page.devices = gpus.devices()
    page.readings = tuple(_to_readings(page, values_of, at, good_for_ns))
    return page


def _to_readings(
    page: Page,
    values_of: Mapping[tuple[str, str, Attrs], _Values],
    at: Instant,
    good_for_ns: int,
) -> Iterable[Reading]:
    """Yield one reading per key; drop a key that has only different values for users."""
    for (uuid, name, attrs), values in values_of.items():
        found = [*values.of_device, *values.copies]
        if values.of_device or len(found) == 1:
            yield Reading(uuid, name, attrs, found[0], None, at, good_for_ns)
        else:
            page.drop("contradictory", values.number, f"{name} of {uuid}")


_AMBIGUOUS: Final = frozenset({"DCGM_FI_DEV_GPU_UTIL_RATIO"})
"""Names that DCGM 4.6 had for a value in percent, and 4.7 has for a ratio."""

_BASE_UNITS: Final = {spec.dcgm_base for spec in CATALOGUE} - {"", *_AMBIGUOUS}
"""Names that DCGM has since 4.7."""


def _names() -> Mapping[str, tuple[tuple[Field, int | Fraction], ...]]:
    """Return fields and the divisors of their values, by names on a page."""
    found: dict[str, dict[str, tuple[Field, int | Fraction]]] = {}
    for spec in CATALOGUE:
        for name in {*spec.dcgm_names, spec.podgpu_metric}:
            found.setdefault(name, {})[spec.name] = (spec, spec.unit_in(name).divisor)
    return {name: tuple(fields.values()) for name, fields in found.items()}


_NAMES: Final = _names()

_RATES: Final = {
    name: next(entry for entry in fields if entry[0].dcgm == name)
    for name, fields in _NAMES.items()
    if len(fields) > 1
}
"""DCGM's field for each name that two fields share."""


def field_of(name: str, kind: str, *, typed: bool) -> tuple[Field, int | Fraction] | None:
    """Return the field of a metric, and the divisor that leads from its unit to the metric's.

    Args:
        name: name of the metric.
        kind: type of the metric on the page.
        typed: whether types distinguish two fields with one name, as on a page of podgpu. On a page
            of dcgm-exporter, the counters file sets the type, and the value is that of DCGM.
    """
    if not typed and (rate := _RATES.get(name.upper())):
        return rate
    fields = _NAMES.get(name, ())
    return next((entry for entry in fields if entry[0].type == kind), next(iter(fields), None))
