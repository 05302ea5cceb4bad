"""Helpers that read the topology that the source reports."""

from collections.abc import Mapping
from pathlib import Path

from pipeline.model import TopologyCard, TopologyPair, TopologyRead
from sources.nvml.source import NvmlSource
from tests.fakes.nvml import FakeNvml, Scenario
from tests.sources.nvml.harness import GPU, options, running
from tests.support.contexts import FakeSourceContext

LINK_CALLS = (
    "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetNvLinkRemoteDeviceType",
    "nvmlDeviceGetNvLinkRemotePciInfo_v2",
)
PAIR_CALLS = ("nvmlDeviceGetTopologyCommonAncestor", "nvmlDeviceGetP2PStatus")


def topologies(ctx: FakeSourceContext) -> list[TopologyRead]:
    return [event for event in ctx.events if isinstance(event, TopologyRead)]


async def read(
    fake: FakeNvml, node: Scenario, sysfs: Path | None = None, ctx: FakeSourceContext | None = None
) -> TopologyRead:
    """Return the first topology that the source reports for a node."""
    ctx = ctx or FakeSourceContext()
    fake.set(node)
    source = NvmlSource(options(), *([] if sysfs is None else [sysfs]))
    async with running(ctx, source):
        return (await ctx.wait_for(TopologyRead))[0]


def by_pair(topology: TopologyRead) -> dict[tuple[int, int], TopologyPair]:
    return {(GPU.index(pair.a), GPU.index(pair.b)): pair for pair in topology.pairs}


def nvlinks(topology: TopologyRead) -> dict[tuple[int, int], int | None]:
    return {places: pair.nvlinks for places, pair in by_pair(topology).items()}


def by_uuid(topology: TopologyRead) -> Mapping[str, TopologyCard]:
    return {card.uuid: card for card in topology.cards}
