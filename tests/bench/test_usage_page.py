"""Rendering usage on the page, compared with prometheus_client with the same series.

Times depend on the machine, ratios hardly: only a ratio is asserted.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from pipeline.exposition.holder_labels import LabelCache
from pipeline.exposition.naming import PageNaming
from pipeline.exposition.options import PageOptions
from pipeline.exposition.text_format import Format
from pipeline.exposition.usage_metrics import UsageFamilies
from pipeline.fields import FieldPlan
from pipeline.model import NS, ContainerUsage, Snapshot
from tests.bench.test_render import best
from tests.support.nodes import Node, gpu, mig
from tests.support.usage import account, used, with_usage

GPUS, EACH = 8, 7
CONTAINERS = 200


class PreparedFamilies(Collector):
    """A collector with prepared families: the least work for prometheus_client."""

    def __init__(self, page: bytes) -> None:
        self._families: list[Metric] = []
        for family in text_string_to_metric_families(page.decode()):
            kind = CounterMetricFamily if family.type == "counter" else GaugeMetricFamily
            made = kind(family.name, family.documentation, labels=list(family.samples[0].labels))
            made.samples = family.samples
            self._families.append(made)

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)


def sampled_snapshots() -> list[Snapshot]:
    """Return snapshots after two usage samples of 56 MIG instances with 200 containers."""
    node = Node()
    parents = [gpu(index) for index in range(GPUS)]
    instances = [mig(parent, gi) for parent in parents for gi in range(EACH)]
    node.has(*parents, *instances)
    snapshot = node.snapshot()

    def had(container: int, number: int) -> ContainerUsage:
        spent = (number * 5 + container) * NS + 123_456_789
        return used(
            f"pod-{container}",
            memory=spent,
            busy=spent,
            held=spent,
            energy=spent,
            contested=spent,
            switching=spent,
        )

    return [
        with_usage(
            snapshot,
            *(
                account(instance, *(had(c, number) for c in range(at, CONTAINERS, len(instances))))
                for at, instance in enumerate(instances)
            ),
        )
        for number in range(2)
    ]


def test_rendering_usage(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = sampled_snapshots()
    made = UsageFamilies(LabelCache(PageNaming(PageOptions(), FieldPlan.everything(), "node-1")))
    page = made.body(Format.TEXT, first)
    series = sum(not line.startswith(b"#") for line in page.splitlines())
    assert series == CONTAINERS * 7 + GPUS * EACH * 8
    registry = CollectorRegistry(auto_describe=False)
    registry.register(PreparedFamilies(page))
    both = [first, second]

    def next_sample() -> bytes:
        both.reverse()
        return made.body(Format.TEXT, both[0])

    def moved() -> bytes:
        layout = replace(second.layout, attributions=dict(second.layout.attributions))
        return made.body(Format.TEXT, replace(second, layout=layout))

    theirs = best(lambda: generate_latest(registry), rounds=10)
    after_a_sample = best(next_sample, rounds=50)
    after_a_change = best(moved, rounds=50)
    between = best(lambda: made.body(Format.TEXT, second), rounds=50)
    with capsys.disabled():
        print(f"\n  {series} series of {CONTAINERS} containers, {len(page) / 1e3:.0f} kB")
        print(f"  {'prometheus_client.generate_latest':<44}{theirs:8.2f} ms")
        for title, ours in (
            ("a scrape after a usage sample", after_a_sample),
            ("a scrape after a holder changed", after_a_change),
            ("a scrape between two usage samples", between),
        ):
            print(f"  {title:<44}{ours:8.2f} ms{theirs / ours:8.0f} x")
    assert theirs / after_a_sample >= 5
    assert theirs / between >= 20
