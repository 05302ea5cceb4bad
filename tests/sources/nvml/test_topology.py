"""The topology of GPUs: what is read from the driver and the kernel."""

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

import pytest

from pipeline.fields import FieldPlan
from pipeline.model import Level, TopologyPair
from tests.fakes.nvml import FakeNvml, Scenario, h100, h100s, t4
from tests.fakes.nvml.topologies import CUBE_MESH, dgx1, hgx, islands, joined, pcie, sockets
from tests.sources.nvml.harness import (
    GPU,
    errors,
    options,
    running,
    until,
)
from tests.sources.nvml.topology_helpers import (
    LINK_CALLS,
    PAIR_CALLS,
    by_pair,
    by_uuid,
    nvlinks,
    read,
    topologies,
)
from tests.support.contexts import FakeSourceContext

# -- what is read


@pytest.mark.parametrize("count", [1, 2, 8])
async def test_each_pair_is_reported_once(fake_nvml: FakeNvml, count: int) -> None:
    topology = await read(fake_nvml, hgx(count))
    assert [card.uuid for card in topology.cards] == GPU[:count]
    assert [card.index for card in topology.cards] == list(range(count))
    assert list(by_pair(topology)) == list(combinations(range(count), 2))


async def test_pcie_levels_are_those_of_the_driver(fake_nvml: FakeNvml) -> None:
    topology = await read(fake_nvml, dgx1())
    for (a, b), pair in by_pair(topology).items():
        near = Level.SINGLE if a // 2 == b // 2 else Level.HOSTBRIDGE
        assert pair.level == (near if a // 4 == b // 4 else Level.SYSTEM)


async def test_gpus_on_nvswitches_have_all_their_links_to_each_other(
    fake_nvml: FakeNvml,
) -> None:
    topology = await read(fake_nvml, hgx(8))
    assert set(nvlinks(topology).values()) == {18}
    assert {card.links for card in topology.cards} == {18}
    assert {pair.reachable for pair in topology.pairs} == {True}


async def test_direct_links_are_counted_by_their_remote_gpu(fake_nvml: FakeNvml) -> None:
    topology = await read(fake_nvml, dgx1())
    assert {at: count for at, count in nvlinks(topology).items() if count} == CUBE_MESH
    assert {card.links for card in topology.cards} == {6}
    assert {at for at, pair in by_pair(topology).items() if pair.reachable} == set(CUBE_MESH)


async def test_gpus_without_nvlinks_have_no_links_to_each_other(fake_nvml: FakeNvml) -> None:
    topology = await read(fake_nvml, pcie(4))
    assert set(nvlinks(topology).values()) == {0}
    assert {card.links for card in topology.cards} == {0}
    assert {pair.reachable for pair in topology.pairs} == {False}


@pytest.mark.slow
async def test_gpus_on_different_sets_of_nvswitches_are_not_linked(fake_nvml: FakeNvml) -> None:
    topology = await read(fake_nvml, islands())
    for (a, b), count in nvlinks(topology).items():
        assert count == (18 if a // 4 == b // 4 else 0)


async def test_links_over_nvswitches_are_the_lower_count_of_both_gpus(
    fake_nvml: FakeNvml,
) -> None:
    node = hgx(3)
    card = node.gpus[1]
    broken = {**card.values, "nvlink_state_4": 0, "nvlink_state_9": 0}
    topology = await read(fake_nvml, node.with_gpu(1, values=broken))
    assert nvlinks(topology) == {(0, 1): 16, (0, 2): 18, (1, 2): 16}
    assert [card.links for card in topology.cards] == [18, 16, 18]


async def test_a_link_that_is_up_on_one_end_only_is_not_counted(fake_nvml: FakeNvml) -> None:
    node = joined(sockets(2, 2), wires={(0, 1): 4})
    one_down = {**node.gpus[1].values, "nvlink_state_3": 0}
    topology = await read(fake_nvml, node.with_gpu(1, values=one_down))
    assert nvlinks(topology) == {(0, 1): 3}


async def test_links_are_counted_if_the_driver_reports_no_remote_type(fake_nvml: FakeNvml) -> None:
    node = joined(sockets(2, 2), wires={(0, 1): 4})
    unsupported = {"nvmlDeviceGetNvLinkRemoteDeviceType": 13}
    node = Scenario(gpus=node.gpus, errors=unsupported)
    assert nvlinks(await read(fake_nvml, node)) == {(0, 1): 4}


async def test_links_to_unknown_remotes_make_the_count_unknown(fake_nvml: FakeNvml) -> None:
    node = hgx(2)
    unknown_remotes = {**node.gpus[0].values, **{f"nvlink_remote_type_{n}": 255 for n in range(18)}}
    topology = await read(fake_nvml, node.with_gpu(0, values=unknown_remotes))
    assert nvlinks(topology) == {(0, 1): None}
    assert topology.pairs[0].reachable is True


async def test_memory_size_is_part_of_the_topology_with_any_plan(
    fake_nvml: FakeNvml,
) -> None:
    ctx = FakeSourceContext()
    ctx.plan = FieldPlan(["gpu_utilization_percent"])
    topology = await read(fake_nvml, hgx(2), ctx=ctx)
    assert {card.memory_bytes for card in topology.cards} == {
        hgx(2).gpus[0].all_values()["memory_total"]
    }


@pytest.mark.parametrize("code", [3, 13, 999])
async def test_memory_size_is_unknown_if_its_call_fails(fake_nvml: FakeNvml, code: int) -> None:
    failing = Scenario(gpus=hgx(2).gpus, errors={"nvmlDeviceGetMemoryInfo": code})
    topology = await read(fake_nvml, failing)
    assert {card.memory_bytes for card in topology.cards} == {None}


# -- what the driver does not report is unknown


async def test_a_vgpu_guest_has_an_unknown_topology(fake_nvml: FakeNvml) -> None:
    """The driver supports none of these calls for a vGPU."""
    unsupported = dict.fromkeys(PAIR_CALLS, 3)
    topology = await read(fake_nvml, Scenario(gpus=[t4(0), t4(1)], errors=unsupported))
    assert topology.pairs == (TopologyPair(GPU[0], GPU[1], None, 0, None),)
    assert {(card.links, card.cluster, card.clique) for card in topology.cards} == {(0, "", None)}


@pytest.mark.parametrize("code", [13, 4, 999])
async def test_links_are_unknown_if_their_calls_fail(fake_nvml: FakeNvml, code: int) -> None:
    node = hgx(2)
    failing = Scenario(gpus=node.gpus, errors=dict.fromkeys(LINK_CALLS, code))
    topology = await read(fake_nvml, failing)
    assert {card.links for card in topology.cards} == {None}
    assert nvlinks(topology) == {(0, 1): None}
    assert topology.pairs[0].reachable is True


async def test_a_card_without_links_has_0_links_to_an_unknown_one(fake_nvml: FakeNvml) -> None:
    node = pcie(2).with_gpu(1, errors=dict.fromkeys(LINK_CALLS, 13))
    topology = await read(fake_nvml, node)
    assert [card.links for card in topology.cards] == [0, None]
    assert nvlinks(topology) == {(0, 1): 0}


async def test_an_unknown_level_is_not_reported(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    topology = await read(fake_nvml, h100s(2, values={"topology": 35}), ctx=ctx)
    assert topology.pairs[0].level is None


async def test_a_driver_without_topology_calls_causes_no_errors(
    fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    unsupported = dict.fromkeys([*PAIR_CALLS, *LINK_CALLS, "nvmlDeviceGetGpuFabricInfo"], 13)
    ctx = FakeSourceContext()
    topology = await read(fake_nvml, Scenario(gpus=hgx(2).gpus, errors=unsupported), ctx=ctx)
    assert topology.pairs == (TopologyPair(GPU[0], GPU[1], None, None, None),)
    assert errors(ctx) == {}, "an unsupported call is no error"


@pytest.mark.parametrize("function", PAIR_CALLS)
async def test_a_failed_call_is_counted(fake_nvml: FakeNvml, function: str) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(Scenario(gpus=hgx(2).gpus, errors={function: 999}))
    async with running(ctx, options(interval=0.1, slow=0.1)):
        await until(lambda: errors(ctx).get((GPU[0], "unknown")))
    pair = topologies(ctx)[0].pairs[0]
    assert (pair.level is None, pair.reachable is None) == (
        function == PAIR_CALLS[0],
        function == PAIR_CALLS[1],
    )


# -- fabric


CLUSTER = "5c3a7a4e-0b1d-4f6e-9a52-2f1d7c0e8b31"


async def test_a_card_registered_with_a_fabric_has_cluster_and_clique(fake_nvml: FakeNvml) -> None:
    node = hgx(2)
    values = {**node.gpus[0].values, "fabric_state": 3, "fabric_clique": 32766}
    node = node.with_gpu(0, values=values, fabric_cluster=CLUSTER)
    cards = by_uuid(await read(fake_nvml, node))
    assert (cards[GPU[0]].cluster, cards[GPU[0]].clique) == (CLUSTER, 32766)
    assert (cards[GPU[1]].cluster, cards[GPU[1]].clique) == ("", None)


@pytest.mark.parametrize(
    ("values", "clique"),
    [
        ({"fabric_state": 0}, None),
        ({"fabric_state": 1, "fabric_clique": 7}, None),
        ({"fabric_state": 2, "fabric_clique": 7}, None),
        ({"fabric_state": 3, "fabric_status": 999, "fabric_clique": 7}, None),
        ({"fabric_state": 3, "fabric_clique": 7}, 7),
    ],
)
async def test_the_clique_is_reported_only_for_a_registered_card(
    fake_nvml: FakeNvml, values: dict[str, int], clique: int | None
) -> None:
    node = hgx(1)
    card = (await read(fake_nvml, node.with_gpu(0, values={**node.gpus[0].values, **values}))).cards
    assert (card[0].cluster, card[0].clique) == ("", clique)


async def test_an_older_driver_reports_its_fabric_by_the_first_call(fake_nvml: FakeNvml) -> None:
    values = {"fabric_state": 3, "fabric_clique": 4}
    card = h100(
        0, values=values, fabric_cluster=CLUSTER, errors={"nvmlDeviceGetGpuFabricInfoV": 13}
    )
    read_card = (await read(fake_nvml, Scenario(gpus=[card]))).cards[0]
    assert (read_card.cluster, read_card.clique) == (CLUSTER, 4)


# -- PCIe places and NUMA nodes


def sysfs_of(root: Path, places: Mapping[str, tuple[str, str | None]]) -> Path:
    """Create a sysfs: for each PCI address, the folders above it and the text of `numa_node`."""
    links = root / "bus/pci/devices"
    links.mkdir(parents=True)
    for address, (above, numa) in places.items():
        device = root / "devices" / above / address
        device.mkdir(parents=True)
        if numa is not None:
            (device / "numa_node").write_text(numa)
        (links / address).symlink_to(device)
    return root


async def test_numa_node_and_pcie_path_are_read_from_sysfs(
    fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    switch = "pci0000:64/0000:64:01.0/0000:65:00.0"
    root = sysfs_of(
        tmp_path / "sys",
        {
            "0000:67:00.0": (switch, "1\n"),
            "0000:06:00.0": ("LNXSYSTM:00/VMBUS:00/pci0000:00", "-1\n"),
            "10000:08:00.0": ("pci10000:00", None),
        },
    )
    buses = ["00000000:67:00.0", "00000000:06:00.0", "00010000:08:00.0", "00000000:AA:00.0"]
    node = Scenario(gpus=[h100(at, bus_id=bus) for at, bus in enumerate(buses)])
    cards = (await read(fake_nvml, node, root)).cards
    assert [card.numa_node for card in cards] == [1, None, None, None]
    assert [card.pcie_path for card in cards] == [
        ("pci0000:64", "0000:64:01.0", "0000:65:00.0"),
        ("pci0000:00",),
        ("pci10000:00",),
        (),
    ]


async def test_without_a_sysfs_numa_node_and_pcie_path_are_unknown(
    fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    cards = (await read(fake_nvml, h100s(2), tmp_path / "none")).cards
    assert {(card.numa_node, card.pcie_path) for card in cards} == {(None, ())}
