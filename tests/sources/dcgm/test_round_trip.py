"""A page that podgpu renders in dcgm-exporter's label forms has the same readings when read."""

import pytest

from pipeline.exposition.options import LabelForm
from pipeline.fields import by_name
from pipeline.join import Join
from pipeline.model import (
    Device,
    DevicesDiscovered,
    Envelope,
    Reading,
    SamplesTaken,
    Snapshot,
    Value,
)
from tests.pipeline.exposition.pages import context, rendered
from tests.sources.dcgm.reading import EVERYTHING, read
from tests.support.nodes import START, Node, claim, every_field, gpu, mig

GPUS = (gpu(0, minor=3), gpu(1, minor=0))
DEVICES = (*GPUS, mig(GPUS[1], 3), mig(GPUS[1], 5, 2, "2g.20gb"))
FORMS: tuple[LabelForm, ...] = ("dcgm", "dcgm-hostname", "dcgm-old", "dcgm-1x")

PLAUSIBLE = {
    "ratio": 0.75,
    "percent": 40,
    "bool": 1,
    "state": 8,
    "celsius": 63,
    "watts": 310.5,
    "MHz": 1980,
}


def plausible(reading: Reading) -> Reading:
    field = by_name(reading.field)
    assert field is not None
    value: Value = PLAUSIBLE.get(field.unit, reading.value)
    return reading._replace(value=value)


def node() -> Snapshot:
    found = Node()
    found.has(*DEVICES)
    found.podlist(claim("train", GPUS[0].uuid), claim("infer", DEVICES[2].uuid))
    found.reads(*(plausible(one) for one in every_field(DEVICES)))
    return found.snapshot()


def read_back(page: bytes, *, known: tuple[Device, ...] = ()) -> Snapshot:
    """Return the snapshot of a node that has only the page, and the devices in `known`."""
    parsed_page, join = read(page), Join()
    join.apply(Envelope("nvml", "nvml", 1, START, DevicesDiscovered(known)))
    join.apply(Envelope("dcgm", "dcgm", 2, START, DevicesDiscovered(parsed_page.devices)))
    join.apply(Envelope("dcgm", "dcgm", 3, START, SamplesTaken(parsed_page.readings)))
    return join.snapshot(START)


def values(snapshot: Snapshot) -> dict[tuple[object, ...], Value]:
    """Return values by GPU, MIG place, field and attributes."""
    found: dict[tuple[object, ...], Value] = {}
    for series, reading in zip(snapshot.layout.series, snapshot.readings, strict=True):
        device = series.attribution.device
        place = device.mig and (device.mig.gpu_instance_id, device.mig.compute_instance_id)
        attrs = tuple(sorted(series.attrs))
        found[device.gpu_uuid, place, series.field, attrs] = reading.value
    return found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("known", [(), DEVICES], ids=["only the page", "devices known from nvml"])
def test_the_readings_are_the_same_after_rendering_and_reading(
    form: LabelForm, known: tuple[Device, ...]
) -> None:
    snapshot = node()
    ctx = context()
    ctx.plan = EVERYTHING
    page = rendered(snapshot, ctx=ctx, labels=form)
    back = values(read_back(page, known=known))
    assert back == values(snapshot)


@pytest.mark.parametrize("form", FORMS)
def test_copies_for_each_holder_are_read_as_one_device(form: LabelForm) -> None:
    found = Node()
    found.has(*DEVICES)
    found.podlist(*(claim(pod, GPUS[0].uuid, share=0.5) for pod in ("a", "b")))
    found.reads(*(plausible(one) for one in every_field(DEVICES)))
    ctx = context()
    ctx.plan = EVERYTHING
    page = rendered(found.snapshot(), ctx=ctx, labels=form, sharing="copies")
    assert b'="a"' in page
    assert b'="b"' in page
    assert values(read_back(page)) == values(found.snapshot())


def test_devices_are_read_back_with_their_details() -> None:
    attributions = read_back(rendered(node(), labels="dcgm")).layout.attributions
    for device in DEVICES[:2]:
        found = attributions[device.uuid].device
        assert (found.index, found.minor) == (device.index, device.minor)
        assert (found.pci_bus_id, found.model) == (device.pci_bus_id, device.model)
