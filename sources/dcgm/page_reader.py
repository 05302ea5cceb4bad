"""From a page to devices and readings."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from pipeline.base.safe_text import line
from pipeline.fields import FieldPlan
from pipeline.fields.value_bounds import possible
from pipeline.model import Attrs, Device, Instant, Reading, Value
from sources.dcgm.exposition_parser import Malformed, Sample, read
from sources.dcgm.page_devices import Gpus
from sources.dcgm.page_labels import COPY, LineDevice, about_a_device, device_of
from sources.dcgm.value_mapping import field_of, is_blank

Reason: TypeAlias = Literal["malformed", "no_device", "blank", "out_of_range", "contradictory"]

_SHOWN: Final = 120
_OURS: Final = "podgpu_"


@dataclass(slots=True)
class Page:
    """What a page says.

    Attributes:
        devices: in the order of the page.
        readings: of fields that were asked for.
        dropped: how many values were left out, by reason.
        examples: the place of the first of them, by reason.
        empty: there is no metric of a GPU exporter on it.
    """

    devices: tuple[Device, ...] = ()
    readings: tuple[Reading, ...] = ()
    dropped: Counter[Reason] = field(default_factory=Counter)
    examples: dict[Reason, str] = field(default_factory=dict)
    empty: bool = True

    def drop(self, reason: Reason, number: int, text: str) -> None:
        """Count a value that is left out."""
        self.dropped[reason] += 1
        self.examples.setdefault(reason, f"line {number}: {line(text, _SHOWN)}")


@dataclass(slots=True)
class _Values:
    """The values that lines give for one reading."""

    whole: Value | None = None
    copies: set[Value] = field(default_factory=set)
    number: int = 0


def parse_page(data: bytes, plan: FieldPlan, at: Instant, good_for_ns: int) -> Page:
    """Return what a page says; whatever the bytes are, it raises nothing.

    Args:
        data: the page.
        plan: fields that are not in it are passed over.
        at: when it was got.
        good_for_ns: how long its readings stand.
    """
    page, gpus, samples = Page(), Gpus(), []
    places: dict[int, LineDevice | None] = {}
    for found in read(data):
        page.empty = False
        if isinstance(found, Malformed):
            page.drop("malformed", found.number, found.text)
            continue
        which = id(found.labels)
        if which not in places:
            place = places[which] = (
                device_of(found.labels) if about_a_device(found.labels) else None
            )
            if place is not None:
                gpus.add(place)
        # Passed over or not, it keeps the labels, and so their id.
        samples.append((found, places[which]))
    typed = any(found.name.startswith(_OURS) for found, _ in samples)
    seen: dict[tuple[str, str, Attrs], _Values] = {}
    for found, place in samples:
        known = field_of(found.name, found.type, typed=typed)
        if place is None or known is None or known[0].name not in plan:
            continue
        wanted, factor = known
        uuid = gpus.find(place)
        if uuid is None:
            page.drop("no_device", found.number, found.name)
        elif is_blank(found.value):
            page.drop("blank", found.number, found.name)
        elif not possible(wanted, value := found.value * factor):
            page.drop("out_of_range", found.number, f"{found.name} {found.value}")
        else:
            key = (uuid, wanted.name, _attrs(found, wanted.attrs))
            _note(seen.setdefault(key, _Values()), found, value)
    page.devices = gpus.devices()
    page.readings = tuple(_settled(page, seen, at, good_for_ns))
    return page


def _attrs(sample: Sample, names: Iterable[str]) -> Attrs:
    labels = sample.labels
    return tuple((name, labels[name]) for name in sorted(names) if labels.get(name))


def _note(seen: _Values, sample: Sample, value: Value) -> None:
    seen.number = seen.number or sample.number
    if not COPY.isdisjoint(sample.labels):
        seen.copies.add(value)
    elif seen.whole is None:
        seen.whole = value


def _settled(
    page: Page,
    seen: Mapping[tuple[str, str, Attrs], _Values],
    at: Instant,
    good_for_ns: int,
) -> Iterable[Reading]:
    """Yield one reading of each; copies that differ are parts, and no value of the device."""
    for (uuid, name, attrs), values in seen.items():
        if values.whole is not None:
            value = values.whole
        elif len(values.copies) == 1:
            [value] = values.copies
        else:
            page.drop("contradictory", values.number, f"{name} of {uuid}")
            continue
        yield Reading(uuid, name, attrs, value, None, at, good_for_ns)
