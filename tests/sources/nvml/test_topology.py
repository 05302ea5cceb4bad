"""How the GPUs are joined: what is asked of the driver and the kernel, and when it is told."""

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
from tests.sources.nvml.joints import (
    LINK_CALLS,
    PAIR_CALLS,
    by_pair,
    by_uuid,
    given_out,
    nvlinks,
    read,
)
from tests.support.contexts import FakeSourceContext

# -- what is read


@pytest.mark.parametrize("count", [1, 2, 8])
async def test_each_pair_is_reported_once(fake_nvml: FakeNvml, count: int) -> None:
    topology = await read(fake_nvml, hgx(count))
    assert [card.uuid for card in topology.cards] == GPU[:count]
    assert [card.index for card in topology.cards] == list(range(count))
    assert list(by_pair(topology)) == list(combinations(range(count), 2))


async def test_levels_are_the_driver_s(fake_nvml: FakeNvml) -> None:
    topology = await read(fake_nvml, dgx1())
    for (a, b), pair in by_pair(topology).items():
        near = Level.SINGLE if a // 2 == b // 2 else Level.HOSTBRIDGE
        assert pair.level == (near if a // 4 == b // 4 else Level.SYSTEM)


async def test_gpus_on_switches_have_as_many_links_to_each_other_as_to_the_switches(
    fake_nvml: FakeNvml,
) -> None:
    topology = await read(fake_nvml, hgx(8))
    assert set(nvlinks(topology).values()) == {18}
    assert {card.links for card in topology.cards} == {18}
    assert {pair.reachable for pair in topology.pairs} == {True}


async def test_direct_links_are_counted_by_what_is_at_their_other_end(fake_nvml: FakeNvml) -> None:
    topology = await read(fake_nvml, dgx1())
    assert {at: count for at, count in nvlinks(topology).items() if count} == CUBE_MESH
    assert {card.links for card in topology.cards} == {6}
    assert {at for at, pair in by_pair(topology).items() if pair.reachable} == set(CUBE_MESH)


async def test_gpus_without_links_have_none_to_each_other(fake_nvml: FakeNvml) -> None:
    topology = await read(fake_nvml, pcie(4))
    assert set(nvlinks(topology).values()) == {0}
    assert {card.links for card in topology.cards} == {0}
    assert {pair.reachable for pair in topology.pairs} == {False}


async def test_two_sets_of_switches_are_not_joined(fake_nvml: FakeNvml) -> None:
    topology = await read(fake_nvml, islands())
    for (a, b), count in nvlinks(topology).items():
        assert count == (18 if a // 4 == b // 4 else 0)


async def test_of_two_on_switches_the_one_with_fewer_active_links_decides(
    fake_nvml: FakeNvml,
) -> None:
    node = hgx(3)
    card = node.gpus[1]
    broken = {**card.values, "nvlink_state_4": 0, "nvlink_state_9": 0}
    topology = await read(fake_nvml, node.with_gpu(1, values=broken))
    assert nvlinks(topology) == {(0, 1): 16, (0, 2): 18, (1, 2): 16}
    assert [card.links for card in topology.cards] == [18, 16, 18]


async def test_a_link_that_only_one_end_sees_up_is_not_counted(fake_nvml: FakeNvml) -> None:
    node = joined(sockets(2, 2), wires={(0, 1): 4})
    half = {**node.gpus[1].values, "nvlink_state_3": 0}
    topology = await read(fake_nvml, node.with_gpu(1, values=half))
    assert nvlinks(topology) == {(0, 1): 3}


async def test_an_old_driver_that_knows_no_kind_of_the_other_end(fake_nvml: FakeNvml) -> None:
    node = joined(sockets(2, 2), wires={(0, 1): 4})
    lacks = {"nvmlDeviceGetNvLinkRemoteDeviceType": 13}
    node = Scenario(gpus=node.gpus, errors=lacks)
    assert nvlinks(await read(fake_nvml, node)) == {(0, 1): 4}


async def test_links_that_lead_no_one_knows_where(fake_nvml: FakeNvml) -> None:
    node = hgx(2)
    astray = {**node.gpus[0].values, **{f"nvlink_remote_type_{n}": 255 for n in range(18)}}
    topology = await read(fake_nvml, node.with_gpu(0, values=astray))
    assert nvlinks(topology) == {(0, 1): None}
    assert topology.pairs[0].reachable is True


async def test_each_gpu_s_memory_is_reported_whoever_asks_for_readings_of_it(
    fake_nvml: FakeNvml,
) -> None:
    ctx = FakeSourceContext()
    ctx.plan = FieldPlan(["gpu_utilization_percent"])
    topology = await read(fake_nvml, hgx(2), ctx=ctx)
    assert {card.memory_bytes for card in topology.cards} == {
        hgx(2).gpus[0].all_values()["memory_total"]
    }


@pytest.mark.parametrize("code", [3, 13, 999])
async def test_memory_that_can_t_be_asked_for_is_unknown(fake_nvml: FakeNvml, code: int) -> None:
    failing = Scenario(gpus=hgx(2).gpus, errors={"nvmlDeviceGetMemoryInfo": code})
    topology = await read(fake_nvml, failing)
    assert {card.memory_bytes for card in topology.cards} == {None}


# -- what the driver doesn't say is unknown


async def test_a_guest_that_gets_no_answers(fake_nvml: FakeNvml) -> None:
    """Of a vGPU the driver supports none of it."""
    lacks = dict.fromkeys(PAIR_CALLS, 3)
    topology = await read(fake_nvml, Scenario(gpus=[t4(0), t4(1)], errors=lacks))
    assert topology.pairs == (TopologyPair(GPU[0], GPU[1], None, 0, None),)
    assert {(card.links, card.cluster, card.clique) for card in topology.cards} == {(0, "", None)}


@pytest.mark.parametrize("code", [13, 4, 999])
async def test_links_that_can_t_be_asked_for_are_unknown(fake_nvml: FakeNvml, code: int) -> None:
    node = hgx(2)
    failing = Scenario(gpus=node.gpus, errors=dict.fromkeys(LINK_CALLS, code))
    topology = await read(fake_nvml, failing)
    assert {card.links for card in topology.cards} == {None}
    assert nvlinks(topology) == {(0, 1): None}
    assert topology.pairs[0].reachable is True


async def test_a_card_without_links_has_none_to_one_that_can_t_report(fake_nvml: FakeNvml) -> None:
    node = pcie(2).with_gpu(1, errors=dict.fromkeys(LINK_CALLS, 13))
    topology = await read(fake_nvml, node)
    assert [card.links for card in topology.cards] == [0, None]
    assert nvlinks(topology) == {(0, 1): 0}


async def test_a_level_that_no_one_knows(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    topology = await read(fake_nvml, h100s(2, values={"topology": 35}), ctx=ctx)
    assert topology.pairs[0].level is None


async def test_a_driver_without_the_calls(
    fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacks = dict.fromkeys([*PAIR_CALLS, *LINK_CALLS, "nvmlDeviceGetGpuFabricInfo"], 13)
    ctx = FakeSourceContext()
    topology = await read(fake_nvml, Scenario(gpus=hgx(2).gpus, errors=lacks), ctx=ctx)
    assert topology.pairs == (TopologyPair(GPU[0], GPU[1], None, None, None),)
    assert errors(ctx) == {}, "what isn't there is no failure"


@pytest.mark.parametrize("function", PAIR_CALLS)
async def test_a_call_that_fails_is_counted(fake_nvml: FakeNvml, function: str) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(Scenario(gpus=hgx(2).gpus, errors={function: 999}))
    async with running(ctx, options(interval=0.1, slow=0.1)):
        await until(lambda: errors(ctx).get((GPU[0], "unknown")))
    pair = given_out(ctx)[0].pairs[0]
    assert (pair.level is None, pair.reachable is None) == (
        function == PAIR_CALLS[0],
        function == PAIR_CALLS[1],
    )


# -- fabric


CLUSTER = "5c3a7a4e-0b1d-4f6e-9a52-2f1d7c0e8b31"


async def test_a_card_that_is_registered_with_a_fabric(fake_nvml: FakeNvml) -> None:
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
async def test_a_fabric_without_a_cluster(
    fake_nvml: FakeNvml, values: dict[str, int], clique: int | None
) -> None:
    node = hgx(1)
    card = (await read(fake_nvml, node.with_gpu(0, values={**node.gpus[0].values, **values}))).cards
    assert (card[0].cluster, card[0].clique) == ("", clique)


async def test_a_driver_that_has_the_first_form_of_the_question(fake_nvml: FakeNvml) -> None:
    values = {"fabric_state": 3, "fabric_clique": 4}
    card = h100(
        0, values=values, fabric_cluster=CLUSTER, errors={"nvmlDeviceGetGpuFabricInfoV": 13}
    )
    reported_ = (await read(fake_nvml, Scenario(gpus=[card]))).cards[0]
    assert (reported_.cluster, reported_.clique) == (CLUSTER, 4)


# -- where they sit


def sysfs_of(root: Path, places: Mapping[str, tuple[str, str | None]]) -> Path:
    """Make a sysfs: for each PCI address the folders above it and what `numa_node` says."""
    links = root / "bus/pci/devices"
    links.mkdir(parents=True)
    for address, (above, numa) in places.items():
        device = root / "devices" / above / address
        device.mkdir(parents=True)
        if numa is not None:
            (device / "numa_node").write_text(numa)
        (links / address).symlink_to(device)
    return root


async def test_numa_node_and_bridges_are_the_kernel_s(fake_nvml: FakeNvml, tmp_path: Path) -> None:
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


async def test_without_a_sysfs_nothing_is_known_of_places(
    fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    cards = (await read(fake_nvml, h100s(2), tmp_path / "none")).cards
    assert {(card.numa_node, card.pcie_path) for card in cards} == {(None, ())}
