"""When the topology is read and reported, and the effects of a driver that hangs."""

import asyncio

import pytest

from pipeline.base.errors import TransientError
from pipeline.model import TopologyRead
from sources.nvml import topology_poller
from sources.nvml.source import NvmlSource
from tests.fakes.nvml import FakeNvml, Scenario, h100, slices
from tests.fakes.nvml.topologies import dgx1, hgx
from tests.sources.nvml.harness import (
    GPU,
    next_rounds,
    options,
    rounds,
    running,
    sampling_threads,
    until,
    ups,
)
from tests.sources.nvml.topology_helpers import LINK_CALLS, PAIR_CALLS, by_pair, nvlinks, topologies
from tests.support.contexts import FakeSourceContext

# -- when it is read and reported


@pytest.fixture
def rarely_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pair is read again, unless a GPU changes."""
    monkeypatch.setattr(topology_poller, "POLL_FACTOR", 1 << 40)


@pytest.fixture
def polled_each_slow_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that may change are read in each slow round."""
    monkeypatch.setattr(topology_poller, "POLL_FACTOR", 0)


@pytest.mark.slow
async def test_fast_rounds_do_not_read_the_topology(
    fake_nvml: FakeNvml, polled_each_slow_round: None
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(hgx(4))
    async with running(ctx, options(interval=0.1, slow=60)):
        await ctx.wait_for(TopologyRead)
        fake_nvml.calls(reset=True)
        await next_rounds(ctx, 4)
        calls = fake_nvml.calls()
    assert not {*PAIR_CALLS, *LINK_CALLS, "nvmlDeviceGetGpuFabricInfoV"} & calls.keys()
    assert len(topologies(ctx)) == 1


@pytest.mark.slow
async def test_links_are_read_once_and_pairs_in_slow_rounds(
    fake_nvml: FakeNvml, polled_each_slow_round: None
) -> None:
    ctx = FakeSourceContext()
    ctx.plan = type(ctx.plan)(["gpu_up"])
    fake_nvml.set(hgx(4))
    async with running(ctx, options(interval=0.1, slow=0.1)):
        await ctx.wait_for(TopologyRead)
        fake_nvml.calls(reset=True)
        await next_rounds(ctx, 4)
        calls = fake_nvml.calls()
    assert not set(LINK_CALLS) & calls.keys()
    assert calls["nvmlDeviceGetP2PStatus"] % 6 == 0, "each pair from one side"
    assert len(topologies(ctx)) == 1, "nothing has changed"


@pytest.mark.slow
async def test_slow_calls_are_repeated_rarely(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    ctx.plan = type(ctx.plan)(["gpu_up"])
    fake_nvml.set(Scenario(gpus=hgx(2).gpus, block={"nvmlDeviceGetP2PStatus": 0.01}))
    async with running(ctx, options(interval=0.1, slow=0.1)):
        await ctx.wait_for(TopologyRead)
        await next_rounds(ctx, 5)
    # Once with the links, and once more to measure the duration without them.
    assert fake_nvml.calls()["nvmlDeviceGetP2PStatus"] == 2


async def test_nvswitches_that_become_ready_later_are_seen(
    fake_nvml: FakeNvml, polled_each_slow_round: None
) -> None:
    """This happens if podgpu starts before the fabric manager."""
    ctx = FakeSourceContext()
    up = hgx(2)
    down = [
        h100(at, values={**card.values, f"p2p_2_{1 - at}": 5, "nvlink_state_17": 0})
        for at, card in enumerate(up.gpus)
    ]
    fake_nvml.set(Scenario(gpus=down))
    async with running(ctx, options(interval=0.1, slow=0.1)):
        first = (await ctx.wait_for(TopologyRead))[0]
        assert (first.pairs[0].nvlinks, first.pairs[0].reachable) == (0, False)
        assert first.cards[0].links == 17
        fake_nvml.set(up)
        await until(lambda: topologies(ctx)[-1].pairs[0].nvlinks == 18)
    last = topologies(ctx)[-1]
    assert last.pairs[0].reachable is True
    assert [card.links for card in last.cards] == [18, 18], "links were read again"


async def test_mig_mode_removes_the_links_of_a_gpu(
    fake_nvml: FakeNvml, polled_each_slow_round: None
) -> None:
    ctx = FakeSourceContext()
    whole = hgx(3)
    fake_nvml.set(whole)
    async with running(ctx, options(interval=0.1, slow=0.1)):
        await ctx.wait_for(TopologyRead)
        values = {**whole.gpus[0].values, "p2p_2_1": 2, "p2p_2_2": 2}
        fake_nvml.set(whole.with_gpu(0, values=values, mig=slices(0, "1g.10gb")))
        await until(lambda: nvlinks(topologies(ctx)[-1]) == {(0, 1): 0, (0, 2): 0, (1, 2): 18})
    assert {card.uuid for card in topologies(ctx)[-1].cards} == set(GPU[:3]), (
        "MIG instances are not part of the topology"
    )


async def test_an_added_gpu_is_part_of_the_topology(
    fake_nvml: FakeNvml, rarely_polled: None
) -> None:
    ctx = FakeSourceContext()
    node = hgx(3)
    fake_nvml.set(node.without_gpu(2))
    async with running(ctx, options(interval=0.1, slow=0.1)):
        assert nvlinks((await ctx.wait_for(TopologyRead))[0]) == {(0, 1): 18}
        fake_nvml.set(node)
        await ctx.wait_for(TopologyRead, 2)
    assert nvlinks(topologies(ctx)[1]) == {(0, 1): 18, (0, 2): 18, (1, 2): 18}


async def test_a_removed_gpu_is_removed_with_its_pairs(
    fake_nvml: FakeNvml, rarely_polled: None
) -> None:
    ctx = FakeSourceContext()
    node = hgx(3)
    fake_nvml.set(node)
    async with running(ctx, options(interval=0.1, slow=0.1)):
        await ctx.wait_for(TopologyRead)
        fake_nvml.set(node.without_gpu(2))
        await ctx.wait_for(TopologyRead, 2)
    assert nvlinks(topologies(ctx)[1]) == {(0, 1): 18}
    assert [card.uuid for card in topologies(ctx)[1].cards] == GPU[:2]


@pytest.mark.slow
async def test_a_gpu_that_is_down_is_left_out_until_it_works_again(
    fake_nvml: FakeNvml, polled_each_slow_round: None
) -> None:
    ctx = FakeSourceContext()
    node = hgx(3)
    fake_nvml.set(node)
    async with running(ctx, options(interval=0.1, slow=0.1)):
        await ctx.wait_for(TopologyRead)
        fake_nvml.set(node.with_gpu(1, lost=True))
        await until(lambda: ups(rounds(ctx)[-1])[GPU[1]] == 0)
        await next_rounds(ctx, 3)
        assert [list(nvlinks(one)) for one in topologies(ctx)[1:]] == [[(0, 2)]]
        fake_nvml.set(node)
        await ctx.wait_for(TopologyRead, 3)
    assert topologies(ctx)[2] == topologies(ctx)[0]


async def test_the_links_of_a_recovered_gpu_are_read_again(
    fake_nvml: FakeNvml, rarely_polled: None
) -> None:
    """A reset may change its links."""
    ctx = FakeSourceContext()
    node = hgx(3)
    fake_nvml.set(node)
    async with running(ctx, options(interval=0.1, slow=0.1)):
        await ctx.wait_for(TopologyRead)
        fake_nvml.set(node.with_gpu(1, lost=True))
        await until(lambda: ups(rounds(ctx)[-1])[GPU[1]] == 0)
        fewer = {**node.gpus[1].values, "nvlink_state_0": 0}
        fake_nvml.set(node.with_gpu(1, values=fewer))
        await ctx.wait_for(TopologyRead, 3)
    assert nvlinks(topologies(ctx)[2]) == {(0, 1): 17, (0, 2): 18, (1, 2): 17}


async def test_a_gpu_that_is_lost_at_the_start_is_added_after_recovery(
    fake_nvml: FakeNvml, rarely_polled: None
) -> None:
    ctx = FakeSourceContext()
    node = hgx(3)
    fake_nvml.set(node.with_gpu(1, lost=True))
    async with running(ctx, options(interval=0.1, slow=0.1)):
        assert nvlinks((await ctx.wait_for(TopologyRead))[0]) == {(0, 2): 18}
        fake_nvml.set(node)
        await ctx.wait_for(TopologyRead, 2)
    assert nvlinks(topologies(ctx)[1]) == {(0, 1): 18, (0, 2): 18, (1, 2): 18}


async def test_an_empty_topology_is_reported_while_the_driver_is_gone(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(hgx(2))
    source = NvmlSource(options(interval=0.1, slow=0.1))
    task = asyncio.create_task(source.run(ctx))
    await ctx.wait_for(TopologyRead)
    fake_nvml.set(Scenario(gpus=hgx(2).gpus, errors={"*": 9}))
    with pytest.raises(TransientError):
        await task
    with pytest.raises(TransientError):
        await source.run(ctx)
    fake_nvml.set(hgx(2))
    async with running(ctx, source):
        await ctx.wait_for(TopologyRead, 3)
    assert topologies(ctx) == [topologies(ctx)[0], TopologyRead((), ()), topologies(ctx)[0]]


@pytest.mark.slow
async def test_the_same_topology_is_reported_again_after_a_reload(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(dgx1())
    for count in (1, 2):
        async with running(ctx, options()):
            await ctx.wait_for(TopologyRead, count)
    assert topologies(ctx)[0] == topologies(ctx)[1]


async def test_unselected_gpus_are_part_of_the_topology(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(hgx(4))
    async with running(ctx, options(devices="g:2")):
        assert len((await ctx.wait_for(TopologyRead))[0].pairs) == 6


# -- calls that hang


@pytest.mark.slow
async def test_a_gpu_whose_link_call_hangs_does_not_affect_others(
    fake_nvml: FakeNvml, no_thread_left: None, polled_each_slow_round: None
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(hgx(3).with_gpu(1, block={"nvmlDeviceGetNvLinkState": 60.0}))
    ctx.plan = type(ctx.plan)(["gpu_up", "power_watts"])
    async with running(ctx, options(interval=0.1, slow=0.1, deadline=0.3)):
        topology = (await ctx.wait_for(TopologyRead))[0]
        samples = await next_rounds(ctx, 2)
        assert ups(samples) == {GPU[0]: 1, GPU[1]: 0, GPU[2]: 1}
        assert sampling_threads() == 2
        fake_nvml.set(hgx(3))
        await until(lambda: by_pair(topologies(ctx)[-1])[0, 1].nvlinks)
    assert nvlinks(topology) == {(0, 2): 18}
    assert nvlinks(topologies(ctx)[-1]) == {(0, 1): 18, (0, 2): 18, (1, 2): 18}


@pytest.mark.slow
async def test_the_links_of_a_gpu_that_hung_are_not_read_again_soon(
    fake_nvml: FakeNvml, no_thread_left: None
) -> None:
    ctx = FakeSourceContext()
    hanging = hgx(2).with_gpu(1, block={"nvmlDeviceGetNvLinkState": 60.0})
    fake_nvml.set(hanging)
    ctx.plan = type(ctx.plan)(["gpu_up", "power_watts"])
    async with running(ctx, options(interval=0.1, slow=0.1, deadline=0.2)):
        await until(lambda: ups(rounds(ctx)[-1]) == {GPU[0]: 1, GPU[1]: 0})
        fake_nvml.set(hgx(2))
        await until(lambda: ups(rounds(ctx)[-1]) == {GPU[0]: 1, GPU[1]: 1})
        fake_nvml.set(hanging)
        before = len(rounds(ctx))
        await next_rounds(ctx, 5)
        assert {ups(one)[GPU[1]] for one in rounds(ctx)[before:]} == {1}
    assert nvlinks(topologies(ctx)[-1]) == {(0, 1): None}


@pytest.mark.slow
async def test_a_hanging_pair_blocks_one_thread_and_is_not_repeated(
    fake_nvml: FakeNvml, no_thread_left: None, polled_each_slow_round: None
) -> None:
    """Either GPU may be faulty, so calls for a third GPU with one of them might hang too."""
    ctx = FakeSourceContext()
    ctx.plan = type(ctx.plan)(["gpu_up", "power_watts"])
    hanging = {"nvmlDeviceGetP2PStatus": 60.0}
    fake_nvml.set(hgx(4).with_gpu(0, block=hanging))
    async with running(ctx, options(interval=0.1, slow=0.1, deadline=0.3)):
        topology = (await ctx.wait_for(TopologyRead))[0]
        assert sampling_threads() == 2
        fake_nvml.set(hgx(4))
        await until(lambda: by_pair(topologies(ctx)[-1])[0, 2].reachable)
    assert nvlinks(topology).keys() == {(1, 2), (1, 3), (2, 3)}, "GPU 0 is down"
    first, last = by_pair(topology), by_pair(topologies(ctx)[-1])
    assert first[2, 3].reachable is True
    assert first[1, 2].reachable is None, "GPU 1 may be faulty"
    assert last[1, 2].reachable is True
    assert last[0, 1].reachable is None


@pytest.mark.slow
async def test_stopping_does_not_wait_for_a_hanging_link_call(
    fake_nvml: FakeNvml, no_thread_left: None
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(hgx(2).with_gpu(0, block={"nvmlDeviceGetNvLinkState": 60.0}))
    ctx.plan = type(ctx.plan)(["gpu_up"])
    task = asyncio.create_task(NvmlSource(options(deadline=30)).run(ctx))
    await until(lambda: fake_nvml.calls().get("nvmlDeviceGetNvLinkState"))
    task.cancel()
    async with asyncio.timeout(1):
        with pytest.raises(asyncio.CancelledError):
            await task
