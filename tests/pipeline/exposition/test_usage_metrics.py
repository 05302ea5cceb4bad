"""The families of usage accounts."""

import re
from collections import defaultdict
from dataclasses import replace
from decimal import Decimal
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings

from pipeline.exposition.options import LabelForm
from pipeline.exposition.text_format import Format
from pipeline.exposition.usage_metrics import CONTAINER, DEVICE, USAGE_FAMILIES
from pipeline.model import NS, DeviceUsage, Instant, Snapshot, Usage
from tests.pipeline.exposition.pages import (
    SCENES,
    families,
    of,
    parsed,
    plain_gpus,
    rendered,
    renderer,
)
from tests.support.nodes import Node, at, claim, gpu, mig, uuid_of
from tests.support.usage import account, usage, usages, used, with_usage

ERROR = "podgpu_container_busy_error_seconds"
CONTESTED = "podgpu_container_contested_busy_seconds_total"
SWITCHING = "podgpu_container_switching_seconds_total"
HELD = "podgpu_container_held_seconds_total"
BUSY = "podgpu_container_busy_seconds_total"
MEMORY = "podgpu_container_memory_used_bytes"
ENERGY = "podgpu_container_energy_joules_total"
ERRORS = "podgpu_container_xid_errors_total"
PARENT = gpu(1)
DEVICES = [gpu(0), PARENT, mig(PARENT, 1), mig(PARENT, 2), gpu(2)]


@cache
def snapshot() -> Snapshot:
    node = Node()
    node.has(*DEVICES)
    return node.snapshot()


def exact(page: bytes, metric: str) -> list[tuple[str, Decimal]]:
    """Return labels and values of a family exactly as written."""
    found = []
    for line in page.decode().splitlines():
        name, _, rest = line.partition("{")
        if name == metric:
            labels, _, value = rest.rpartition("} ")
            found.append((labels, Decimal(value)))
    return found


def on(page: bytes, metric: str) -> dict[str, Decimal]:
    """Return the sums of a family by device UUID (plus GPU instance id for a MIG instance)."""
    found: defaultdict[str, Decimal] = defaultdict(Decimal)
    for labels, value in exact(page, metric):
        uuid = labels.split('UUID="')[1].split('"')[0]
        instance = labels.split('GPU_I_ID="')[1].split('"')[0] if "GPU_I_ID" in labels else ""
        found[uuid + instance] += value
    return found


def has_usage(snapshot: Snapshot | None) -> bool:
    return snapshot is not None and snapshot.usage is not None


@pytest.mark.parametrize(
    "scene", [name for name, scene in SCENES.items() if not has_usage(scene())]
)
@pytest.mark.parametrize("form", Format)
def test_without_usage_there_are_no_usage_series(scene: str, form: Format) -> None:
    page = rendered(SCENES[scene](), form)
    assert not any(family.metric.encode() in page for family in USAGE_FAMILIES)


def test_container_series_have_the_labels_of_device_container_and_pod_uid() -> None:
    made = account(gpu(0), used("a", memory=1, busy=2 * NS, held=3 * NS, energy=4_000))
    series = parsed(rendered(with_usage(snapshot(), made)))
    expected = {MEMORY: 1, BUSY: 2, HELD: 3, ENERGY: 4}
    for name, value in expected.items():
        assert of(series, name) == [
            (
                {
                    "gpu": "0",
                    "UUID": uuid_of(0),
                    "device": "nvidia0",
                    "Hostname": "node-1",
                    "namespace": "ml",
                    "pod": "a",
                    "container": "main",
                    "pod_uid": "u-a",
                },
                value,
            )
        ]


def test_busy_time_of_a_shared_device_has_the_bound_of_its_error() -> None:
    """Two standard errors of contested time in windows of 200 ms, and the time for switching."""
    shared = used("a", busy=9 * NS, contested=5 * NS, switching=NS // 2)
    alone = used("b", busy=9 * NS, contested=0, switching=0)
    made = account(gpu(0), shared), account(mig(PARENT, 2), alone)
    series = parsed(rendered(with_usage(snapshot(), *made)))
    found = {
        labels["pod"]: (value, of_contested, of_switching)
        for (labels, value), (_, of_contested), (_, of_switching) in zip(
            of(series, ERROR), of(series, CONTESTED), of(series, SWITCHING), strict=True
        )
    }
    assert found == {"a": (2.5, 5, 0.5), "b": (0, 0, 0)}


def test_series_of_a_mig_instance_name_the_instance() -> None:
    page = rendered(with_usage(snapshot(), account(mig(PARENT, 2), used("a", held=NS))))
    [(labels, _)] = of(parsed(page), HELD)
    assert (labels["UUID"], labels["GPU_I_ID"], labels["GPU_I_PROFILE"]) == (
        PARENT.uuid,
        "2",
        "1g.10gb",
    )


@pytest.mark.parametrize(
    ("form", "names"),
    [
        ("dcgm", ("UUID", "namespace", "pod", "container")),
        ("dcgm-old", ("uuid", "pod_namespace", "pod_name", "container_name")),
    ],
)
def test_label_names_are_those_of_the_label_form(form: LabelForm, names: tuple[str, ...]) -> None:
    page = rendered(with_usage(snapshot(), account(gpu(0), used("a"))), labels=form)
    [(labels, _)] = of(parsed(page), HELD)
    assert [labels[name] for name in names] == [uuid_of(0), "ml", "a", "main"]


@pytest.mark.parametrize(("containers", "expected_label"), [(True, ""), (False, None)])
def test_device_series_have_empty_container_labels(
    containers: bool, expected_label: str | None
) -> None:
    shown = with_usage(snapshot(), account(gpu(0), unheld=5 * NS))
    series = parsed(rendered(shown, containers=containers))
    for family in DEVICE:
        [(labels, _)] = of(series, family.metric)
        assert {labels.get(name) for name in ("namespace", "pod", "container")} == {expected_label}
        assert "pod_uid" not in labels


OF_DEVICE = "podgpu_device_"
UNKNOWN = [
    (MEMORY, account(gpu(0), used("a", memory=None))),
    (BUSY, account(gpu(0), used("a", busy=None))),
    (ERROR, account(gpu(0), used("a", busy=1, contested=None, switching=None))),
    (CONTESTED, account(gpu(0), used("a", busy=1, contested=None, switching=None))),
    (SWITCHING, account(gpu(0), used("a", busy=1, contested=None, switching=None))),
    (ENERGY, account(gpu(0), used("a", energy=None))),
    (f"{OF_DEVICE}unattributed_memory_used_bytes", account(gpu(0), memory=None)),
    (f"{OF_DEVICE}unattributed_busy_seconds_total", account(gpu(0), busy=None)),
    (f"{OF_DEVICE}busy_seconds_total", account(gpu(0), busy=None)),
    (f"{OF_DEVICE}unattributed_energy_joules_total", account(gpu(0), energy=None)),
]


@pytest.mark.parametrize(("metric", "unknown"), UNKNOWN, ids=[metric for metric, _ in UNKNOWN])
def test_an_unknown_amount_has_no_sample(metric: str, unknown: DeviceUsage) -> None:
    page = rendered(with_usage(snapshot(), unknown))
    assert metric.encode() not in page, "no header either"
    assert b"podgpu_device_accounted_seconds_total" in page


def test_an_ended_container_keeps_its_totals_and_has_no_memory_series() -> None:
    ended = used("a", ended=at(5), busy=NS, held=2 * NS, energy=3_000, contested=NS, switching=0)
    series = parsed(rendered(with_usage(snapshot(), account(gpu(0), ended))))
    missing = [family.metric for family in CONTAINER if len(of(series, family.metric)) != 1]
    assert missing == [MEMORY]


def test_a_gpu_with_mig_instances_has_no_time_series() -> None:
    made = account(PARENT, memory=None, busy=None, unheld=9 * NS, energy=7_000)
    series = parsed(rendered(with_usage(snapshot(), made)))
    assert {name for name, _ in series if name.startswith("podgpu_device_") and "info" not in name}
    found = {name for name, _ in series if name in {family.metric for family in DEVICE}}
    assert found == {"podgpu_device_unattributed_energy_joules_total"}


def test_usage_of_an_unknown_device_is_left_out() -> None:
    page = rendered(with_usage(snapshot(), account("GPU-gone", used("a", held=NS))))
    assert b"podgpu_container" not in page


@pytest.mark.parametrize(
    ("busy", "written"),
    [
        (0, "0"),
        (1, "0.000000001"),
        (5 * NS, "5"),
        (12 * NS + 340_000_000, "12.340000000"),
        ((1 << 62) + 1, "4611686018.427387905"),
    ],
)
def test_values_are_written_with_all_digits(busy: int, written: str) -> None:
    page = rendered(with_usage(snapshot(), account(gpu(0), used("a", busy=busy))))
    assert f"}} {written}\n".encode() in page[page.index(f"\n{BUSY}{{".encode()) :]
    assert parsed(page)


def test_xid_errors_have_one_series_per_code_that_occurred() -> None:
    one = used("a", xids=((13, 1), (79, 40)))
    page = rendered(with_usage(snapshot(), account(gpu(0), one, used("b"))))
    found = exact(page, ERRORS)
    assert [(labels.split(",")[-1], int(value)) for labels, value in found] == [
        ('xid="13"', 1),
        ('xid="79"', 40),
    ]
    assert all('pod="a"' in labels and 'pod_uid="u-a"' in labels for labels, _ in found)
    without = rendered(with_usage(snapshot(), account(gpu(0), used("b"))))
    assert ERRORS.encode() not in without, "no header either"


def test_errors_of_containers_with_the_same_shown_name_are_summed() -> None:
    same = [
        used("\ud800", uid="u", xids=((13, 1), (31, 2))),
        used("\ud801", uid="u", xids=((31, 3),)),
    ]
    page = rendered(with_usage(snapshot(), account(gpu(0), *same)))
    found = [(labels.split(",")[-1], int(value)) for labels, value in exact(page, ERRORS)]
    assert found == [('xid="13"', 1), ('xid="31"', 5)]


def test_types_and_help_texts_of_usage_families() -> None:
    page = rendered(SCENES["usage"](), Format.OPENMETRICS)
    shown = {family.name: family for family in families(page, Format.OPENMETRICS)}
    for family in USAGE_FAMILIES:
        found = shown[family.metric.removesuffix("_total")]
        assert (found.type, found.documentation) == (family.kind, family.about)
        assert (family.kind == "counter") == family.metric.endswith("_total")
        if "energy" in family.metric:
            assert "estimated" in family.about


def test_docs_usage_lists_all_usage_families() -> None:
    page = (Path(__file__).parents[3] / "docs" / "usage.md").read_text(encoding="utf-8")
    table = page[page.index("## The families") : page.index("## The rules")]
    found = re.findall(r"^\| `(podgpu_\w+)` \| (\w+) \|", table, re.MULTILINE)
    assert found == [(family.metric, family.kind) for family in USAGE_FAMILIES]
    named = set(re.findall(r"podgpu_(?:container|device)_\w+", page))
    assert {name for name in named if name.endswith(("_total", "_bytes", "_seconds"))} <= {
        family.metric for family in USAGE_FAMILIES
    }


def test_the_page_follows_changes_of_accounts_and_devices() -> None:
    page = renderer()

    def shown(snapshot: Snapshot) -> list[float]:
        page.show(snapshot)
        return [value for _, value in of(parsed(page.body(Format.TEXT)), HELD)]

    node = Node()
    node.has(gpu(0))
    first = with_usage(node.snapshot(), account(gpu(0), used("a", held=NS)))
    assert shown(first) == [1]
    assert shown(replace(node.snapshot(), usage=first.usage)) == [1]
    more = account(gpu(0), used("a", held=2 * NS), used("b"))
    assert shown(with_usage(node.snapshot(), more)) == [2, 0]
    assert shown(node.snapshot()) == []
    both = usage(more, account(gpu(1), used("c", held=3 * NS)))
    assert shown(replace(node.snapshot(), usage=both)) == [2, 0]
    node.has(gpu(0), gpu(1))
    assert shown(replace(node.snapshot(), usage=both)) == [2, 0, 3]


def test_labels_follow_a_changed_minor_number() -> None:
    node, page = Node(), renderer()
    found = []
    for minor in (3, 4):
        node.has(gpu(0, minor=minor))
        page.show(with_usage(node.snapshot(), account(gpu(0), used("a"))))
        [(labels, _)] = of(parsed(page.body(Format.TEXT)), HELD)
        found.append(labels["device"])
    assert found == ["nvidia3", "nvidia4"]


def test_an_unchanged_account_is_rendered_once() -> None:
    """A scrape between two usage samples renders nothing; labels are made once per container."""
    page = renderer()
    node = Node()
    node.has(gpu(0))
    first = with_usage(node.snapshot(), account(gpu(0), used("a"), used("b")))
    page.show(first)
    page.body(Format.TEXT)
    lines, labels = page._usage._lines, page._usage._labels
    page.show(replace(node.snapshot(), usage=first.usage, layout=first.layout))
    page.body(Format.OPENMETRICS)
    assert page._usage._lines is lines
    later = account(gpu(0), used("b", held=NS), used("c"))
    page.show(with_usage(first, later))
    page.body(Format.TEXT)
    kept = page._usage._labels
    assert {subject.pod for _, subject in kept} == {"b", "c"}, (
        "labels of the removed container are freed"
    )
    again = [key for key in kept if key in labels]
    assert [kept[key] is labels[key] for key in again] == [True]


@pytest.mark.slow
@given(usages(DEVICES))
@settings(deadline=None)
def test_the_page_has_the_exact_totals_of_the_accounts(accounts: Usage) -> None:
    """With all digits and for any container names, so that parts sum to the total."""
    shown = replace(snapshot(), usage=accounts)
    pages = [rendered(shown, form) for form in Format]
    assert parsed(pages[0]) == parsed(pages[1], Format.OPENMETRICS)
    page = pages[0]
    names = {
        device.uuid: device.gpu_uuid + (str(device.mig.gpu_instance_id) if device.mig else "")
        for device in DEVICES
    }
    for family in CONTAINER:
        sums = {
            names[uuid]: Decimal(sum(known)).scaleb(-_digits(family.divisor))
            for uuid, one in accounts.devices.items()
            if (known := [v for each in one.containers if (v := family.value(each)) is not None])
        }
        assert on(page, family.metric) == sums
    for of_device in DEVICE:
        values = {
            names[uuid]: Decimal(value).scaleb(-_digits(of_device.divisor))
            for uuid, one in accounts.devices.items()
            if (value := of_device.value(one)) is not None
            and not (of_device.of_time and uuid == PARENT.uuid)
        }
        assert on(page, of_device.metric) == values


@given(usages([gpu(0)]).filter(lambda accounts: bool(accounts.devices)))
@settings(deadline=None)
def test_the_parts_on_the_page_sum_to_the_total(accounts: Usage) -> None:
    """Except for the amounts of forgotten containers."""
    [one] = accounts.devices.values()
    page = rendered(replace(snapshot(), usage=accounts))
    key = gpu(0).uuid

    def at_(metric: str) -> Decimal:
        return on(page, metric).get(key, Decimal(0))

    held = at_(HELD) + at_("podgpu_device_unattributed_held_seconds_total")
    total = at_("podgpu_device_accounted_seconds_total")
    assert total - held == Decimal(one.forgotten_held_ns).scaleb(-9)
    if one.busy_ns is not None:
        busy = at_(BUSY) + at_("podgpu_device_unattributed_busy_seconds_total")
        total = at_("podgpu_device_busy_seconds_total")
        assert total - busy == Decimal(one.forgotten_busy_ns).scaleb(-9)


def _digits(divisor: int) -> int:
    return len(str(divisor)) - 1


def test_usage_does_not_change_the_series_of_readings() -> None:
    plain = plain_gpus()
    before = rendered(plain)
    after = rendered(with_usage(plain, account(gpu(0), used("a"))))
    added = [line for line in after.splitlines() if line not in before.splitlines()]
    assert all(b"podgpu_container_" in line or b"podgpu_device_" in line for line in added)
    assert set(before.splitlines()) <= set(after.splitlines())


def test_series_of_holders_and_of_usage_can_be_joined() -> None:
    """By pod UID and device: for example a holder's share and its held time."""
    node = Node()
    node.has(gpu(0))
    node.podlist(claim("a", gpu(0).uuid, share=0.5))
    series = parsed(rendered(with_usage(node.snapshot(), account(gpu(0), used("a", uid="")))))
    [(share, _)] = of(series, "podgpu_device_holder_share")
    [(held, _)] = of(series, HELD)
    assert {**held, "source": "podlist", "evidence": "pod_list_file"} == share


@pytest.mark.parametrize("step", [3600, -3600, 12 * 366 * 86_400])
def test_t8_holder_since_moves_with_the_wall_clock(step: int) -> None:
    """T8: the age that `podgpu_device_holder_since_timestamp_seconds` shows stays the same."""
    node = Node()
    node.has(gpu(0))
    node.podlist(claim("a", gpu(0).uuid))
    node.seconds = 10
    first = node.snapshot()
    page, ages = renderer(), []
    for at_ in (first.at, Instant(first.at.mono_ns, first.at.wall_ns + step * NS)):
        page.show(replace(first, at=at_))
        series = parsed(page.body(Format.TEXT))
        [(_, since)] = of(series, "podgpu_device_holder_since_timestamp_seconds")
        ages.append(at_.wall_ns / NS - since)
    assert ages == [10, 10]
