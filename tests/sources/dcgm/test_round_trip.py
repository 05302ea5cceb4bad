"""What podgpu shows in dcgm-exporter's forms is read back as what it was."""

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

MOST = {
    "ratio": 0.75,
    "percent": 40,
    "bool": 1,
    "state": 8,
    "celsius": 63,
    "watts": 310.5,
    "MHz": 1980,
}


def believable(found: Reading) -> Reading:
    field = by_name(found.field)
    assert field is not None
    value: Value = MOST.get(field.unit, found.value)
    return found._replace(value=value)


def node() -> Snapshot:
    found = Node()
    found.has(*DEVICES)
    found.podlist(claim("train", GPUS[0].uuid), claim("infer", DEVICES[2].uuid))
    found.reads(*(believable(one) for one in every_field(DEVICES)))
    return found.snapshot()


def again(page: bytes, *, beside: tuple[Device, ...] = ()) -> Snapshot:
    """Return the snapshot of a node that has only the page, and perhaps knows its devices."""
    given_out, join = read(page), Join()
    join.apply(Envelope("nvml", "nvml", 1, START, DevicesDiscovered(beside)))
    join.apply(Envelope("dcgm", "dcgm", 2, START, DevicesDiscovered(given_out.devices)))
    join.apply(Envelope("dcgm", "dcgm", 3, START, SamplesTaken(given_out.readings)))
    return join.snapshot(START)


def values(snapshot: Snapshot) -> dict[tuple[object, ...], Value]:
    """Return values by place, field and attributes."""
    found: dict[tuple[object, ...], Value] = {}
    for series, reading in zip(snapshot.layout.series, snapshot.readings, strict=True):
        device = series.attribution.device
        place = device.mig and (device.mig.gpu_instance_id, device.mig.compute_instance_id)
        attrs = tuple(sorted(series.attrs))
        found[device.gpu_uuid, place, series.field, attrs] = reading.value
    return found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("beside", [(), DEVICES], ids=["alone", "beside nvml"])
def test_the_same_readings(form: LabelForm, beside: tuple[Device, ...]) -> None:
    snapshot = node()
    ctx = context()
    ctx.plan = EVERYTHING
    page = rendered(snapshot, ctx=ctx, labels=form)
    back = values(again(page, beside=beside))
    assert back == values(snapshot)


@pytest.mark.parametrize("form", FORMS)
def test_copies_for_each_holder_are_one_device_s(form: LabelForm) -> None:
    found = Node()
    found.has(*DEVICES)
    found.podlist(*(claim(pod, GPUS[0].uuid, share=0.5) for pod in ("a", "b")))
    found.reads(*(believable(one) for one in every_field(DEVICES)))
    ctx = context()
    ctx.plan = EVERYTHING
    page = rendered(found.snapshot(), ctx=ctx, labels=form, sharing="copies")
    assert b'="a"' in page
    assert b'="b"' in page
    assert values(again(page)) == values(found.snapshot())


def test_devices_are_known_again() -> None:
    given_out = again(rendered(node(), labels="dcgm")).layout.attributions
    for device in DEVICES[:2]:
        found = given_out[device.uuid].device
        assert (found.index, found.minor) == (device.index, device.minor)
        assert (found.pci_bus_id, found.model) == (device.pci_bus_id, device.model)
