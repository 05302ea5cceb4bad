"""Utilisation and memory of each holder, by its own processes (`sharing: copies`)."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.exposition.text_format import Format
from pipeline.model import Claim, ContainerUsage, Device, Snapshot
from tests.pipeline.exposition.pages import context, of, parsed, rendered, renderer
from tests.support.examples import examples
from tests.support.nodes import Node, claim, claims, gpu, kubelet_claim, mig, reading
from tests.support.usage import account, used, with_usage

A = gpu(0)
UTIL, USED, POWER = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_POWER_USAGE"
MIB = 1 << 20


def node(*held: Claim, device: Device = A) -> Node:
    found = Node()
    found.has(gpu(0), *([device] if device.mig else []), gpu(1))
    found.say(claims(*held), "kubelet", "podresources")
    found.reads(
        reading(device, "gpu_utilization_percent", 90),
        reading(device, "memory_used_bytes", 1000 * MIB),
        reading(device, "power_watts", 300),
    )
    return found


def shared(pod: str, *numbers: int, container: str = "main") -> Claim:
    return kubelet_claim(pod, *(f"{A.uuid}::{number}" for number in numbers), container=container)


def of_pod(pod: str, memory: int | None, recent: int | None, **more: Any) -> ContainerUsage:
    memory_bytes = None if memory is None else memory * MIB
    return used(pod, memory=memory_bytes, recent=recent, **{"uid": "", **more})


def shown(snapshot: Snapshot, metric: str, **options: Any) -> list[tuple[str, float]]:
    """Return the pod and the value of each series of the first GPU."""
    series = parsed(rendered(snapshot, **{"sharing": "copies", **options}))
    return [(each["pod"], value) for each, value in of(series, metric) if each["gpu"] == "0"]


def two(*containers: ContainerUsage) -> Snapshot:
    snapshot = node(shared("a", 0), shared("b", 1)).snapshot()
    return with_usage(snapshot, account(A, *containers))


def test_each_holder_has_what_its_own_processes_use() -> None:
    snapshot = two(of_pod("a", 700, 600_000), of_pod("b", 250, 287_500))
    assert shown(snapshot, UTIL) == [("", 90), ("a", 60), ("b", 28.75)]
    assert shown(snapshot, USED) == [("", 1000), ("a", 700), ("b", 250)]


def test_an_idle_holder_has_0() -> None:
    snapshot = two(of_pod("a", 700, 600_000), of_pod("b", 0, 0))
    assert shown(snapshot, UTIL) == [("", 90), ("a", 60), ("b", 0)]
    assert shown(snapshot, USED) == [("", 1000), ("a", 700), ("b", 0)]


def test_all_other_readings_are_copied() -> None:
    assert shown(two(), POWER) == [("a", 300), ("b", 300)]


def test_by_default_a_shared_device_has_one_series() -> None:
    snapshot = two(of_pod("a", 700, 600_000), of_pod("b", 250, 287_500))
    for sharing in ("info", "claims"):
        assert shown(snapshot, UTIL, sharing=sharing) == [("", 90)]


def test_without_container_labels_a_shared_device_has_one_series() -> None:
    snapshot = two(of_pod("a", 700, 600_000), of_pod("b", 250, 287_500))
    page = parsed(rendered(snapshot, sharing="copies", containers=False))
    assert [value for _, value in of(page, USED)] == [1000]


@pytest.mark.parametrize(
    "containers",
    [
        pytest.param((), id="no account"),
        pytest.param((of_pod("a", None, None), of_pod("b", None, None)), id="not known"),
        pytest.param(
            (of_pod("a", 0, 0), of_pod("b", 0, 0), of_pod("", 5, 5, namespace="", uid="u")),
            id="processes of a pod whose name is unknown, which may be a holder's",
        ),
    ],
)
def test_what_is_unknown_has_no_sample(containers: tuple[ContainerUsage, ...]) -> None:
    """The device's own series stays, and no value counts as dropped."""
    ctx = context()
    for metric, value in ((UTIL, 90), (USED, 1000)):
        assert shown(two(*containers), metric, ctx=ctx) == [("", value)]
    assert ctx.counted("podgpu_sink_dropped_total") == {}


def test_without_usage_samples_only_the_device_has_a_series() -> None:
    snapshot = node(shared("a", 0), shared("b", 1)).snapshot()
    assert shown(snapshot, UTIL) == [("", 90)]


def test_one_unknown_holder_does_not_hide_another() -> None:
    snapshot = two(of_pod("a", None, 100_000), of_pod("b", 250, None))
    assert shown(snapshot, UTIL) == [("", 90), ("a", 10)]
    assert shown(snapshot, USED) == [("", 1000), ("b", 250)]


def test_processes_of_another_pod_are_no_holders() -> None:
    """With its uid known, a holder cannot be the pod of a nameless process."""
    found = Node()
    found.has(A)
    found.podlist(claim("a", A.uuid, share=0.5))
    found.reads(reading(A, "memory_used_bytes", 1000 * MIB))
    (holder,) = found.snapshot().layout.attributions[A.uuid].holders
    assert holder.subject.uid == ""
    rogue = used("rogue", memory=MIB, recent=0)
    snapshot = with_usage(found.snapshot(), account(A, of_pod("a", 3, 0), rogue))
    assert shown(snapshot, USED) == [("", 1000), ("a", 3)]


def test_a_device_with_one_holder_has_both_series_too() -> None:
    snapshot = with_usage(
        node(kubelet_claim("a", A.uuid)).snapshot(), account(A, of_pod("a", 800, 880_000))
    )
    assert shown(snapshot, UTIL) == [("", 90), ("a", 88)]


def test_a_free_device_has_one_series() -> None:
    assert shown(with_usage(node().snapshot(), account(A)), UTIL) == [("", 90)]


def test_several_replicas_of_a_holder_are_one_series_with_the_first_number() -> None:
    snapshot = with_usage(
        node(shared("a", 10, 2)).snapshot(), account(A, of_pod("a", 700, 600_000))
    )
    series = of(parsed(rendered(snapshot, sharing="copies")), UTIL)
    assert [(one.get("vgpu"), value) for one, value in series] == [(None, 90), ("2", 60)]


def test_each_container_of_a_pod_has_its_own_part() -> None:
    snapshot = with_usage(
        node(shared("a", 1), shared("a", 2, container="side")).snapshot(),
        account(A, of_pod("a", 700, 0), of_pod("a", 200, 0, container="side")),
    )
    assert shown(snapshot, USED) == [("", 1000), ("a", 700), ("a", 200)]


def test_what_other_containers_of_a_pod_use_counts_for_its_first_holder() -> None:
    """Init containers, and containers to which all devices are visible, do not hold the device."""
    snapshot = with_usage(
        node(shared("a", 1), shared("a", 2, container="side"), shared("b", 3)).snapshot(),
        account(
            A,
            of_pod("a", 700, 400_000),
            of_pod("a", 200, 0, container="side"),
            of_pod("a", 30, 100_000, container="setup"),
            of_pod("b", 5, 0),
            of_pod("other", 1, 10_000),
        ),
    )
    assert shown(snapshot, USED) == [("", 1000), ("a", 730), ("a", 200), ("b", 5)]
    assert shown(snapshot, UTIL) == [("", 90), ("a", 50), ("a", 0), ("b", 0)]


def test_a_pod_has_no_sample_if_a_part_of_it_is_unknown() -> None:
    snapshot = two(
        of_pod("a", 700, 600_000), of_pod("a", None, 0, container="setup"), of_pod("b", 250, 0)
    )
    assert shown(snapshot, USED) == [("", 1000), ("b", 250)]
    assert shown(snapshot, UTIL) == [("", 90), ("a", 60), ("b", 0)]


@pytest.mark.parametrize("inline", [(), ("pod_uid",), ("labels",)])
def test_a_holders_part_always_has_the_label_pod_uid(inline: tuple[str, ...]) -> None:
    snapshot = two(of_pod("a", 700, 600_000), of_pod("b", 250, 287_500))
    series = parsed(rendered(snapshot, sharing="copies", inline=inline))
    for labels, _ in of(series, USED):
        assert ("pod_uid" in labels) == (labels["pod"] != "" or "pod_uid" in inline)
    for labels, _ in of(series, POWER):
        assert ("pod_uid" in labels) == ("pod_uid" in inline)


def test_the_memory_of_a_mig_instance_is_that_of_each_holder() -> None:
    instance = mig(A, 1)
    held = [kubelet_claim(pod, f"{instance.uuid}::{at}") for at, pod in enumerate("ab")]
    snapshot = node(*held, device=instance).snapshot()
    usage = account(instance, of_pod("a", 700, None), of_pod("b", 0, 0))
    assert shown(with_usage(snapshot, usage), USED) == [("", 1000), ("a", 700), ("b", 0)]


def test_a_new_snapshot_shows_new_values_without_a_new_template() -> None:
    page = renderer(sharing="copies")
    base = node(shared("a", 0), shared("b", 1)).snapshot()
    for memory in (1, 2, None, 3):
        page.show(with_usage(base, account(A, of_pod("a", memory, 0), of_pod("b", 0, 0))))
        series = of(parsed(page.body(Format.TEXT)), USED)
        found = {one["pod"]: value for one, value in series if one["pod"] == "a"}
        assert found == ({} if memory is None else {"a": memory})


PODS = st.dictionaries(
    st.sampled_from("abcd"),
    st.tuples(st.sampled_from([(0,), (0, 1)]), st.integers(0, 4096), st.integers(0, 250_000)),
)


@given(PODS)
@settings(max_examples=examples(50), deadline=None)
def test_sums_over_pods_are_at_most_the_device_and_each_holder_has_one_series(
    pods: dict[str, tuple[tuple[int, ...], int, int]],
) -> None:
    held = [
        shared(pod, *(10 * at + replica for replica in replicas))
        for at, (pod, (replicas, _, _)) in enumerate(pods.items())
    ]
    total = sum(memory for _, memory, _ in pods.values()) + 100
    found = Node()
    found.has(A)
    found.say(claims(*held), "kubelet", "podresources")
    found.reads(
        reading(A, "gpu_utilization_percent", 100),
        reading(A, "memory_used_bytes", total * MIB),
    )
    containers = [of_pod(pod, memory, recent) for pod, (_, memory, recent) in pods.items()]
    snapshot = with_usage(found.snapshot(), account(A, *containers, memory=100 * MIB))
    for metric, device in ((UTIL, 100), (USED, total)):
        series = shown(snapshot, metric)
        assert [value for pod, value in series if not pod] == [device]
        assert sorted(pod for pod, _ in series if pod) == sorted(pods)
        assert sum(value for pod, value in series if pod) <= device
