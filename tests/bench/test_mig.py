"""Page and rounds of a node with 8 GPUs and 7 MIG instances on each, compared with 8 whole GPUs.

The driver is simulated, and its calls have other costs than those of a real one: ratios between
the two nodes are printed, and only the number of calls is asserted.
"""

from collections import Counter
from dataclasses import dataclass

import pytest

from pipeline.exposition.holder_labels import LabelCache
from pipeline.exposition.naming import PageNaming
from pipeline.exposition.options import PageOptions
from pipeline.exposition.renderer import PageTemplate
from pipeline.exposition.text_format import Format
from pipeline.fields import FieldPlan
from pipeline.model import DevicesDiscovered, SamplesTaken
from tests.bench.test_render import best
from tests.fakes.nvml import FakeNvml, Scenario, h100s, mig_node
from tests.fakes.nvml.fixtures import fake_nvml as fake_nvml  # noqa: PLC0414 - a fixture
from tests.sources.nvml.harness import next_rounds, options, rounds, running, until
from tests.sources.nvml.test_calls import NOT_OF_ROUNDS, documented
from tests.support.contexts import FakeSourceContext
from tests.support.nodes import Node

GPUS, INSTANCES = 8, 56


@dataclass(frozen=True, slots=True)
class Measured:
    series: int
    page_bytes: int
    render_ms: float
    reshape_ms: float
    round_ms: float
    calls: Counter[str]
    """The average calls of a round."""


def duration(ctx: FakeSourceContext) -> tuple[float, float]:
    """Return sum and count of the durations of rounds."""
    points = {
        point.suffix: point.value
        for family, found in ctx.telemetry.collect({})
        if family.name == "podgpu_sample_duration_seconds"
        for point in found
        if point.suffix in {"_sum", "_count"}
    }
    return points["_sum"], points["_count"]


async def measured(fake: FakeNvml, scenario: Scenario) -> Measured:
    ctx = FakeSourceContext()
    fake.set(scenario)
    async with running(ctx, options(interval=0.3, slow=60)):
        await until(lambda: fake.calls().get("nvmlDeviceRegisterEvents", 0) >= GPUS, within=20)
        await next_rounds(ctx, 2)
        fake.calls(reset=True)
        before, (spent, count) = len(rounds(ctx)), duration(ctx)
        await next_rounds(ctx, 5)
        calls, done = fake.calls(reset=True), len(rounds(ctx)) - before
        later, more = duration(ctx)
    samples = rounds(ctx)
    node = Node()
    node.say(next(e for e in ctx.events if isinstance(e, DevicesDiscovered)))
    for event in (samples[0], samples[-1]):
        node.say(SamplesTaken(event.readings, event.processes))
    snapshot = node.snapshot()
    plan = FieldPlan()
    cache = LabelCache(PageNaming(PageOptions(), plan, "node-1"))

    def page(shape: PageTemplate) -> bytes:
        return shape.body(Format.TEXT, *shape.format_values(snapshot.readings))

    shape = PageTemplate(snapshot.layout, snapshot.at, plan, cache)
    return Measured(
        len(snapshot.layout.series),
        len(page(shape)),
        best(lambda: page(shape), rounds=50),
        best(lambda: page(PageTemplate(snapshot.layout, snapshot.at, plan, cache))),
        (later - spent) / (more - count) * 1e3,
        Counter({k: n // done for k, n in calls.items() if not NOT_OF_ROUNDS.search(k)}),
    )


async def test_a_mig_node_against_a_node_of_whole_gpus(
    fake_nvml: FakeNvml, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = await measured(fake_nvml, h100s(GPUS))
    cut = await measured(fake_nvml, mig_node())
    rows = [
        ("series", whole.series, cut.series),
        ("page, kB", whole.page_bytes / 1e3, cut.page_bytes / 1e3),
        ("page of a new snapshot, ms", whole.render_ms, cut.render_ms),
        ("page of a new layout, ms", whole.reshape_ms, cut.reshape_ms),
        ("calls of a fast round", whole.calls.total(), cut.calls.total()),
        ("fast round, simulated driver, ms", whole.round_ms, cut.round_ms),
    ]
    with capsys.disabled():
        print(f"\n  {'':<36}{f'{GPUS} GPUs':>10}{f'and {INSTANCES} MIG':>12}{'ratio':>8}")
        for title, of_whole, of_cut in rows:
            print(f"  {title:<36}{of_whole:10.2f}{of_cut:12.2f}{of_cut / of_whole:8.2f}")
    bound = Counter(documented("Fast round, once"))
    for name, count in documented("Fast round, each GPU").items():
        bound[name] += count * GPUS
    for name, count in documented("Fast round, each MIG instance, added").items():
        bound[name] += count * INSTANCES
    assert {name: (n, bound[name]) for name, n in cut.calls.items() if n > bound[name]} == {}
    assert cut.series > whole.series
    # The part of the page for one device does not grow with the number of devices.
    assert cut.page_bytes / (GPUS + INSTANCES) < whole.page_bytes / GPUS
