"""Who used how much: names, units, values, and in whose resource they stand."""

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
from sinks.otlp.encoding.usage_names import INSTRUMENTS, instrument
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
    of_pods,
)
from tests.sinks.otlp.encoding.prometheus import name_of
from tests.sinks.otlp.encoding.support import Identity, held, named, pods, points
from tests.support.nodes import at, claim, gpu, reading
from tests.support.usage import account, usage, usages, used


def test_names_units_and_types() -> None:
    assert [(found.name, found.kind, found.unit) for found in INSTRUMENTS] == [
        (MEMORY, "updowncounter", "By"),
        (BUSY, "counter", "s"),
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


def test_prometheus_gives_them_the_page_s_names_but_for_the_word_time() -> None:
    for ours, page in zip(INSTRUMENTS, USAGE_FAMILIES, strict=True):
        assert name_of(ours.name, ours.unit, ours.kind).replace("_time", "") == page.metric


def test_among_dcgm_s_names_they_are_the_page_s() -> None:
    for page in USAGE_FAMILIES:
        found = instrument(page, page=True)
        assert (found.name, found.kind, found.unit) == (page.metric, page.kind, "")
        assert found.description == page.about


PAGE = Path(__file__).parents[4] / "docs" / "otlp-names.md"
TABLE = re.compile(r"^\| metric of usage \| .*?(?=^[^|])", re.MULTILINE | re.DOTALL)


def test_the_page_of_names_has_them_all() -> None:
    """`PODGPU_WRITE_GOLDEN=1` writes its table anew."""
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


def test_a_container_s_points_are_in_its_resource_and_name_the_device() -> None:
    scene = Scene()
    had = used("a", memory=7, busy=3 * NS // 2, held=2 * NS, energy=2_500)
    found = of_pods(scene.look_at(had, second=5))
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
def test_it_is_the_resource_of_what_is_said_of_a_holder(containers: bool) -> None:
    """A second one would be the same service once more."""
    scene = Scene(containers=containers)
    info = PodInfo("u-a", "ml", "a", owner_kind="Job", owner_name="fit", labels=(("v", "1"),))
    pods(scene.node, info)
    held(scene.node, claim("a", gpu(0).uuid))
    scene.node.reads(reading(gpu(0), "power_watts", 70))
    found = scene.look_at(used("a", busy=NS), second=0)
    [of_holder] = {p.resource for p in found if p.name.startswith("podgpu.device.holder")}
    assert dict(of_holder)["k8s.job.name"] == "fit"
    assert {point.resource for point in of_pods(found)} == {of_holder}
    power = dict(named(found, "hw.power")[0].resource)
    assert ("k8s.pod.name" in power) == containers


def test_one_that_has_ended_stays_in_its_resource() -> None:
    scene = Scene()
    pods(scene.node, PodInfo("u-a", "ml", "a"))
    said = claim("a", gpu(0).uuid)
    held(scene.node, replace(said, subject=replace(said.subject, container_id="c0ffee")))
    first = of_pods(scene.look_at(used("a", busy=NS), second=5))
    assert {point.of("container.id") for point in first} == {"c0ffee"}
    held(scene.node)
    later = scene.look_at(used("a", busy=2 * NS, ended=at(7)), second=10)
    assert not any(point.ended for point in later)
    assert {point.resource for point in of_pods(later)} == {point.resource for point in first}


def test_what_is_no_container_s_stands_with_the_node() -> None:
    scene = Scene()
    held(scene.node, claim("a", gpu(0).uuid))
    made = account(gpu(0), used("a", busy=NS), memory=1, busy=NS, unheld=3 * NS, energy=4_000)
    found = [p for p in scene.look(made) if not p.name.startswith("podgpu.container")]
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


def test_the_time_of_a_gpu_that_carries_instances_says_nothing() -> None:
    scene = Scene(*DEVICES)
    found = scene.look(account(PARENT, memory=None, busy=None, unheld=NS, energy=5))
    assert [point.name for point in found] == ["podgpu.device.unattributed.energy"]


def test_points_come_with_each_look_and_at_no_other_time() -> None:
    scene = Scene(gpu(0), gpu(1))
    first = account(gpu(0), used("a")), account(gpu(1), used("b"))
    assert {point.of("hw.id") for point in scene.look(*first)} == {gpu(0).uuid, gpu(1).uuid}
    assert scene.take() == []
    held(scene.node, claim("a", gpu(0).uuid))
    scene.node.reads(reading(gpu(1), "power_watts", 70))
    assert [point.name for point in scene.take()] == ["hw.power"]
    # A look at one device says nothing of the other.
    scene.node.seconds = 1
    found = scene.look(first[0], account(gpu(1), used("b"), until=at(1)))
    assert {point.of("hw.id") for point in found} == {gpu(1).uuid}


def test_two_containers_that_go_by_one_name_are_reported_of_once_and_counted() -> None:
    scene = Scene()
    same = [used("p" * 1024 + ending, uid="u", memory=1, busy=0, energy=0) for ending in "ab"]
    found = scene.look_at(*same, second=5)
    assert len(of_pods(found)) == 4
    assert scene.encoder.duplicates == 4


@pytest.mark.parametrize("memory", [1 << 63, (1 << 63) - 1])
def test_what_is_no_integer_of_64_bits_is_a_float(memory: int) -> None:
    scene = Scene()
    [point] = named(scene.look_at(used("a", memory=memory), second=5), MEMORY)
    assert point.value == memory
    assert isinstance(point.value, float) == (memory >= 1 << 63)


def test_large_accounts_become_several_records() -> None:
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
def test_xid_errors_are_reported_by_code_as_the_device_s_are(
    names: Names, device: str, code: tuple[str, str]
) -> None:
    scene = Scene(names=names)
    found = of_pods(scene.look_at(used("a", xids=((13, 1), (79, 2)), start=at(2)), second=5))
    errors = {point.of(code[0]): point for point in found if "xid" in point.name}
    assert len(errors) == 2
    point = errors[code[1]]
    assert (point.value, point.start, point.kind) == (2, at(2).wall_ns, "counter")
    assert point.of(device) == gpu(0).uuid
    assert dict(point.resource)["k8s.pod.name"] == "a"


STEPS = st.lists(st.tuples(st.booleans(), st.none() | usages(DEVICES)), min_size=1, max_size=5)


@pytest.mark.parametrize("names", ["semconv", "dcgm"])
@given(STEPS)
@settings(deadline=None, max_examples=40)
def test_what_was_pushed_is_what_the_account_says(
    names: Names, steps: Sequence[tuple[bool, Usage | None]]
) -> None:
    """Every quantity that is known has a point, and what was told before and is not ends.

    Points that say nothing new are of what is there, and come with a look.
    """
    scene = Scene(*DEVICES, names=names)
    has: dict[Identity, float] = {}
    for second, (looked, given_out) in enumerate(steps, 1):
        scene.node.seconds = second
        scene.usage = (
            given_out
            if given_out is None
            else _moved(given_out, scene.usage, second, looked=looked)
        )
        doubled = scene.encoder.duplicates
        found = scene.take()
        doubled = scene.encoder.duplicates - doubled
        now = {point.identity: point for point in found if not point.ended}
        ended = [point.identity for point in found if point.ended]
        assert len(now) + len(ended) == len(found)
        assert set(ended) <= has.keys() - now.keys()
        assert len(set(ended)) == len(ended)
        gone = _gone(scene.usage)
        for point in of_pods(list(now.values())):
            repeats = has.get(point.identity) == point.value
            assert not (repeats and (point.of("k8s.pod.name"), point.of("hw.id")) in gone)
        has = {key: value for key, value in has.items() if key not in set(ended)}
        has |= {identity: float(point.value or 0) for identity, point in now.items()}
        expected = _expected(scene.usage, names)
        assert sum(map(len, expected.values())) == len(has) + doubled
        if not doubled:
            got: defaultdict[tuple[str, object], list[float]] = defaultdict(list)
            for (_, name, attributes), value in has.items():
                device = dict(attributes).get("hw.id")
                got[name, device if names == "semconv" else None].append(value)
            assert {key: sorted(map(float, values)) for key, values in expected.items()} == {
                key: sorted(values) for key, values in got.items()
            }


def _moved(given_out: Usage, before: Usage | None, second: int, *, looked: bool) -> Usage:
    """The same account after a look in that second, or after no other look than before."""

    def until(uuid: str) -> Instant:
        was = before.devices.get(uuid) if before else None
        return at(second) if looked or was is None else was.at

    return usage(*(replace(one, at=until(uuid)) for uuid, one in given_out.devices.items()))


def _gone(given_out: Usage | None) -> set[tuple[object, object]]:
    """Pods of which all containers have ended on a device."""
    found: dict[tuple[object, object], bool] = {}
    for uuid, one in given_out.devices.items() if given_out else ():
        for each in one.containers:
            key = (each.subject.pod or None, uuid)
            found[key] = found.get(key, True) and each.ended is not None
    return {key for key, ended in found.items() if ended}


def _expected(given_out: Usage | None, names: Names) -> dict[tuple[str, object], list[float]]:
    found: defaultdict[tuple[str, object], list[float]] = defaultdict(list)
    for uuid, one in given_out.devices.items() if given_out else ():
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
