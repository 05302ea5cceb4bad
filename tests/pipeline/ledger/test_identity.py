"""What the ledger stores of pods whose names and UIDs are reported at different times."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.ledger.reports.report import build_report
from pipeline.model import Claim
from tests.pipeline.join.cluster import A, checkpoint_claim, kubelet_claim, pod, uid_of
from tests.pipeline.join.sampled_cluster import SampledCluster, cgroup_owner, process_of
from tests.pipeline.ledger.open_ledger import OpenLedger
from tests.pipeline.ledger.reports.test_report import GROUPINGS, NO_PRICES
from tests.pipeline.usage.samples import S, use


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[OpenLedger]:
    with closing(OpenLedger(tmp_path / "usage.db")) as found:
        yield found


def in_namespace(namespace: str, claim: Claim) -> Claim:
    return replace(claim, subject=replace(claim.subject, namespace=namespace))


def add_snapshot(ledger: OpenLedger, node: SampledCluster) -> None:
    ledger.accumulator.add_snapshot(node.snapshot())
    ledger.commit()
    assert ledger.accumulator.inconsistent == 0


def test_t9_usage_of_a_uid_stays_with_the_name_that_it_had(ledger: OpenLedger) -> None:
    """`a` of web ends after 4 s; `b` of ml gets its GPU; the checkpoint still has a's UID."""
    node = SampledCluster()
    node.kubelet(in_namespace("web", kubelet_claim("a", A)))
    node.checkpoint(checkpoint_claim("u1", A))
    node.sample(0, use(A, 0, None, busy=None))
    add_snapshot(ledger, node)
    for when in range(2, 26, 2):
        if when == 4:
            node.seconds = 4
            node.kubelet(in_namespace("ml", kubelet_claim("b", A)))
        if when == 14:
            node.checkpoint(checkpoint_claim("u2", A))
            node.kubelet(in_namespace("ml", kubelet_claim("b", A)))
            node.checkpoint(checkpoint_claim("u2", A))
        node.sample(when, use(A, when, when - 2, busy=S))
        add_snapshot(ledger, node)
    found = build_report(ledger.window(), GROUPINGS[0], NO_PRICES)
    held = {row.key.name: row.held_ns for row in found.rows if row.key}
    assert held == {"web": 4 * S, "ml": 20 * S}


def test_t11_a_container_that_gets_its_full_name_later_has_one_holding(ledger: OpenLedger) -> None:
    """Its name held the device, its UID used it; then a source reports that both are one pod."""
    node = SampledCluster()
    node.kubelet(kubelet_claim("a", A))
    node.sample(0, use(A, 0, None))
    for when in (2, 4):
        node.sample(when, use(A, when, when - 2, process_of(cgroup_owner("a"), busy=S), busy=S))
        add_snapshot(ledger, node)
    node.seconds = 5
    node.pods(pod("a", started=-100))
    node.sample(6, use(A, 6, 4, process_of(cgroup_owner("a"), busy=S), busy=S))
    add_snapshot(ledger, node)
    node.seconds = 7
    node.delete("a")
    node.sample(8, use(A, 8, 6, process_of(cgroup_owner("a"), kind="", busy=S), busy=S))
    add_snapshot(ledger, node)
    [total] = ledger.rows("SELECT sum(held_ns), sum(busy_ns) FROM hours WHERE container != 0")
    assert total == (7 * S, 4 * S)
    rows = ledger.rows(
        "SELECT c.uid, c.pod, c.container, h.held_ns, h.busy_ns, h.counted_ns + h.gap_ns"
        " FROM holdings h JOIN containers c ON c.id = h.container"
    )
    assert rows == [(uid_of("a"), "a", "main", 7 * S, 4 * S, 7 * S)]
