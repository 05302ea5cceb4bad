"""Points of usage accounts: names, units, values and resources."""

import os
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.exposition.usage_metrics import CONTAINER, DEVICE, USAGE_FAMILIES
from pipeline.model import NS, Instant, PodInfo, Usage
from sinks.otlp.encoding.metric_names import usage_instrument as instrument
from sinks.otlp.options import Names
from tests.sinks.otlp.encoding.accounts import (
    BUSY,
    DEVICES,
    ENERGY,
    ERRORS,
    HELD,
    MEMORY,
    PARENT,
    Scene,
    container_points,
)
from tests.sinks.otlp.encoding.prometheus import name_of
from tests.sinks.otlp.encoding.support import Identity, held, named, pods, points
from tests.support.examples import examples
from tests.support.nodes import at, claim, gpu, reading
from tests.support.usage import account, usage, usages, used

INSTRUMENTS = [instrument(family, page=False) for family in USAGE_FAMILIES]


def test_names_units_and_types_of_usage_metrics() -> None:
    assert [(found.name, found.kind, found.unit) for found in INSTRUMENTS] == [
        (MEMORY, "updowncounter", "By"),
        (BUSY, "counter", "s"),
        ("podgpu.container.busy_error", "gauge", "s"),
        ("podgpu.container.contested.busy", "counter", "s"),
        ("podgpu.container.switching", "counter", "s"),
        (HELD, "counter", "s"),
        (ENERGY, "counter", "J"),
        (ERRORS, "counter", "{error}"),
        ("podgpu.device.unattributed.memory.used", "updowncounter", "By"),
        ("podgpu.device.unattributed.busy", "counter", "s"),
        ("podgpu.device.unattributed.held", "counter", "s"),
        ("podgpu.device.free", "counter", "s"),
        ("podgpu.device.unknown.held", "counter", "s"),
        ("podgpu.device.unattributed.energy", "counter", "J"),
        ("podgpu.device.busy", "counter", "s"),
        ("podgpu.device.accounted", "counter", "s"),
    ]


def test_prometheus_converts_usage_metrics_to_the_names_of_the_page() -> None:
    for otlp, page in zip(INSTRUMENTS, USAGE_FAMILIES, strict=True):
        assert name_of(otlp.name, otlp.unit, otlp.kind).replace("_time", "") == page.metric


def test_with_dcgm_names_usage_metrics_have_the_names_of_the_page() -> None:
    for page in USAGE_FAMILIES:
        found = instrument(page, page=True)
        assert (found.name, found.kind, found.unit) == (page.metric, page.kind, "")
        assert found.description == page.about


PAGE = Path(__file__).parents[4] / "docs" / "otlp-names.md"
TABLE = re.compile(r"^\| metric of usage \| .*?(?=^[^|])", re.MULTILINE | re.DOTALL)


def test_docs_otlp_names_has_the_current_table_of_usage_metrics() -> None:
    """`PODGPU_WRITE_GOLDEN=1` writes its table again."""
    rows = ["| metric of usage | type | unit | in Prometheus | |", "|---|---|---|---|---|"]
    rows += [
        f"| `{found.name}` | {found.kind} | `{found.unit}` | "
        f"`{name_of(found.name, found.unit, found.kind)}` | {found.description} |"
        for found in INSTRUMENTS
    ]
    table = "\n".join(rows) + "\n"
    page = PAGE.read_text(encoding="utf-8")
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        page = TABLE.sub(lambda _: table, page)
        PAGE.write_text(page, encoding="utf-8")
    assert TABLE.findall(page) == [table]


def test_points_of_a_container_have_its_resource_and_name_the_device() -> None:
    scene = Scene()
    container_usage = used("a", memory=7, busy=3 * NS // 2, held=2 * NS, energy=2_500)
    found = container_points(scene.sample_containers(container_usage, second=5))
    assert {point.name: point.value for point in found} == {
        MEMORY: 7,
        BUSY: 1.5,
        HELD: 2.0,
        ENERGY: 2.5,
    }
    for point in found:
        resource = dict(point.resource)
        assert (resource["k8s.namespace.name"], resource["k8s.pod.name"]) == ("ml", "a")
        assert (resource["k8s.container.name"], resource["k8s.pod.uid"]) == ("main", "u-a")
        assert resource["service.instance.id"] == "ml.a.main"
        assert (point.of("hw.id"), point.time) == (gpu(0).uuid, at(5).wall_ns)


@pytest.mark.parametrize("containers", [True, False])
def test_usage_points_and_holder_points_have_the_same_resource(containers: bool) -> None:
    """A second resource would have the same service identity."""
    scene = Scene(containers=containers)
    info = PodInfo("u-a", "ml", "a", owner_kind="Job", owner_name="fit", labels=(("v", "1"),))
    pods(scene.node, info)
    held(scene.node, claim("a", gpu(0).uuid))
    scene.node.reads(reading(gpu(0), "power_watts", 70))
    found = scene.sample_containers(used("a", busy=NS), second=0)
    [of_holder] = {p.resource for p in found if p.name.startswith("podgpu.device.holder")}
    assert dict(of_holder)["k8s.job.name"] == "fit"
    assert {point.resource for point in container_points(found)} == {of_holder}
    power = dict(named(found, "hw.power")[0].resource)
    assert ("k8s.pod.name" in power) == containers


def test_an_ended_container_keeps_its_resource() -> None:
    scene = Scene()
    pods(scene.node, PodInfo("u-a", "ml", "a"))
    held_claim = claim("a", gpu(0).uuid)
    held(
        scene.node, replace(held_claim, subject=replace(held_claim.subject, container_id="c0ffee"))
    )
    first = container_points(scene.sample_containers(used("a", busy=NS), second=5))
    assert {point.of("container.id") for point in first} == {"c0ffee"}
    held(scene.node)
    later = scene.sample_containers(used("a", busy=2 * NS, ended=at(7)), second=10)
    assert not any(point.ended for point in later)
    assert {point.resource for point in container_points(later)} == {
        point.resource for point in first
    }


def test_device_points_have_the_resource_of_the_node() -> None:
    scene = Scene()
    held(scene.node, claim("a", gpu(0).uuid))
    made = account(gpu(0), used("a", busy=NS), memory=1, busy=NS, unheld=3 * NS, energy=4_000)
    found = [p for p in scene.sample(made) if not p.name.startswith("podgpu.container")]
    assert {point.name: point.value for point in found} == {
        "podgpu.device.unattributed.memory.used": 1,
        "podgpu.device.unattributed.busy": 1.0,
        "podgpu.device.unattributed.held": 3.0,
        "podgpu.device.free": 3.0,
        "podgpu.device.unknown.held": 0.0,
        "podgpu.device.unattributed.energy": 4.0,
        "podgpu.device.busy": 2.0,
        "podgpu.device.accounted": 3.0,
    }
    assert {point.of("service.name") for point in found} == {"podgpu"}


def test_a_gpu_with_mig_instances_has_no_time_points() -> None:
    scene = Scene(*DEVICES)
    found = scene.sample(account(PARENT, memory=None, busy=None, unheld=NS, energy=5))
    assert [point.name for point in found] == ["podgpu.device.unattributed.energy"]


def test_points_are_sent_once_per_usage_sample() -> None:
    scene = Scene(gpu(0), gpu(1))
    first = account(gpu(0), used("a")), account(gpu(1), used("b"))
    assert {point.of("hw.id") for point in scene.sample(*first)} == {gpu(0).uuid, gpu(1).uuid}
    assert scene.encode() == []
    held(scene.node, claim("a", gpu(0).uuid))
    scene.node.reads(reading(gpu(1), "power_watts", 70))
    assert [point.name for point in scene.encode()] == ["hw.power"]
    # A sample of one device sends no points of the other.
    scene.node.seconds = 1
    found = scene.sample(first[0], account(gpu(1), used("b"), until=at(1)))
    assert {point.of("hw.id") for point in found} == {gpu(1).uuid}


def test_a_duplicate_container_identity_is_sent_once_and_counted() -> None:
    scene = Scene()
    same = [used("p" * 1024 + ending, uid="u", memory=1, busy=0, energy=0) for ending in "ab"]
    found = scene.sample_containers(*same, second=5)
    assert len(container_points(found)) == 4
    assert scene.encoder.duplicates == 4


@pytest.mark.parametrize("memory", [1 << 63, (1 << 63) - 1])
def test_a_value_outside_int64_is_sent_as_a_float(memory: int) -> None:
    scene = Scene()
    [point] = named(scene.sample_containers(used("a", memory=memory), second=5), MEMORY)
    assert point.value == memory
    assert isinstance(point.value, float) == (memory >= 1 << 63)


def test_large_accounts_are_split_into_several_records() -> None:
    devices = [gpu(index) for index in range(8)]
    scene = Scene(*devices, most_bytes=20_000)
    made = [
        account(device, *(used(f"pod-{index}", busy=index, memory=1) for index in range(25)))
        for device in devices
    ]
    scene.usage = usage(*made)
    records = scene.encoder.encode(scene.snapshot())
    assert len(records) > 3
    assert max(len(record.data) for record in records) <= 20_000
    assert len(points(records)) == 8 * 25 * 3 + 8 * 8


@pytest.mark.parametrize(
    ("names", "device", "code"),
    [("semconv", "hw.id", ("error.type", "xid_79")), ("dcgm", "UUID", ("xid", "79"))],
)
def test_xid_errors_of_a_container_are_counted_by_code(
    names: Names, device: str, code: tuple[str, str]
) -> None:
    scene = Scene(names=names)
    found = container_points(
        scene.sample_containers(used("a", xids=((13, 1), (79, 2)), start=at(2)), second=5)
    )
    errors = {point.of(code[0]): point for point in found if "xid" in point.name}
    assert len(errors) == 2
    point = errors[code[1]]
    assert (point.value, point.start, point.kind) == (2, at(2).wall_ns, "counter")
    assert point.of(device) == gpu(0).uuid
    assert dict(point.resource)["k8s.pod.name"] == "a"


STEPS = st.lists(st.tuples(st.booleans(), st.none() | usages(DEVICES)), min_size=1, max_size=5)


@pytest.mark.slow
@pytest.mark.parametrize("names", ["semconv", "dcgm"])
@given(STEPS)
@settings(deadline=None, max_examples=examples(40))
def test_sent_points_equal_the_accounts(
    names: Names, steps: Sequence[tuple[bool, Usage | None]]
) -> None:
    """Every known amount has a point, and a series ends when its amount is no longer known.

    Repeated values are sent only for current containers, and only with a usage sample.
    """
    scene = Scene(*DEVICES, names=names)
    latest: dict[Identity, float] = {}
    for second, (sampled, accounts) in enumerate(steps, 1):
        scene.node.seconds = second
        scene.usage = (
            accounts if accounts is None else _moved(accounts, scene.usage, second, sampled=sampled)
        )
        duplicates = scene.encoder.duplicates
        found = scene.encode()
        duplicates = scene.encoder.duplicates - duplicates
        now = {point.identity: point for point in found if not point.ended}
        ended = [point.identity for point in found if point.ended]
        assert len(now) + len(ended) == len(found)
        assert set(ended) <= latest.keys() - now.keys()
        assert len(set(ended)) == len(ended)
        ended_pods = _ended_pods(scene.usage)
        for point in container_points(list(now.values())):
            repeats = latest.get(point.identity) == point.value
            assert not (repeats and (point.of("k8s.pod.name"), point.of("hw.id")) in ended_pods)
        latest = {key: value for key, value in latest.items() if key not in set(ended)}
        latest |= {identity: float(point.value or 0) for identity, point in now.items()}
        expected = _expected(scene.usage, names)
        assert sum(map(len, expected.values())) == len(latest) + duplicates
        if not duplicates:
            found_values: defaultdict[tuple[str, object], list[float]] = defaultdict(list)
            for (_, name, attributes), value in latest.items():
                device = dict(attributes).get("hw.id")
                found_values[name, device if names == "semconv" else None].append(value)
            assert {key: sorted(map(float, values)) for key, values in expected.items()} == {
                key: sorted(values) for key, values in found_values.items()
            }


def _moved(accounts: Usage, before: Usage | None, second: int, *, sampled: bool) -> Usage:
    """Return the same accounts, sampled in this second or not sampled again."""

    def until(uuid: str) -> Instant:
        earlier = before.devices.get(uuid) if before else None
        return at(second) if sampled or earlier is None else earlier.at

    return usage(*(replace(one, at=until(uuid)) for uuid, one in accounts.devices.items()))


def _ended_pods(accounts: Usage | None) -> set[tuple[object, object]]:
    """Return the pods whose containers on a device have all ended."""
    found: dict[tuple[object, object], bool] = {}
    for uuid, one in accounts.devices.items() if accounts else ():
        for each in one.containers:
            key = (each.subject.pod or None, uuid)
            found[key] = found.get(key, True) and each.ended is not None
    return {key for key, ended in found.items() if ended}


def _expected(accounts: Usage | None, names: Names) -> dict[tuple[str, object], list[float]]:
    found: defaultdict[tuple[str, object], list[float]] = defaultdict(list)
    for uuid, one in accounts.devices.items() if accounts else ():
        key = uuid if names == "semconv" else None
        for family in CONTAINER:
            name = instrument(family, page=names == "dcgm").name
            for each in one.containers:
                if (value := family.value(each)) is not None:
                    found[name, key].append(value / family.divisor)
        for of_device in DEVICE:
            value = of_device.value(one)
            if value is not None and not (of_device.of_time and uuid == PARENT.uuid):
                name = instrument(of_device, page=names == "dcgm").name
                found[name, key].append(value / of_device.divisor)
    return found
