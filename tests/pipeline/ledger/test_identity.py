"""What the ledger keeps of pods whose names and uids are told at different moments."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.ledger.reports.report import build_report
from pipeline.model import Claim
from tests.pipeline.join.cluster import A, kept, listed, pod, uid_of
from tests.pipeline.join.watched import Watched, ids, ran_by
from tests.pipeline.ledger.keeping import Kept
from tests.pipeline.ledger.reports.test_report import EVERY, FREE
from tests.pipeline.usage.looking import S, use


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Kept]:
    with closing(Kept(tmp_path / "usage.db")) as found:
        yield found


def of(namespace: str, claim: Claim) -> Claim:
    return replace(claim, subject=replace(claim.subject, namespace=namespace))


def note(ledger: Kept, node: Watched) -> None:
    ledger.book.add_snapshot(node.snapshot())
    ledger.commit()
    assert ledger.book.inconsistent == 0


def test_t9_the_history_of_a_uid_stays_with_the_name_it_had(ledger: Kept) -> None:
    """`a` of web ends after 4 s; `b` of ml gets its GPU, and the checkpoint has a's uid still."""
    node = Watched()
    node.kubelet(of("web", listed("a", A)))
    node.checkpoint(kept("u1", A))
    node.look(0, use(A, 0, None, busy=None))
    note(ledger, node)
    for when in range(2, 26, 2):
        if when == 4:
            node.seconds = 4
            node.kubelet(of("ml", listed("b", A)))
        if when == 14:
            node.checkpoint(kept("u2", A))
            node.kubelet(of("ml", listed("b", A)))
            node.checkpoint(kept("u2", A))
        node.look(when, use(A, when, when - 2, busy=S))
        note(ledger, node)
    found = build_report(ledger.window(), EVERY[0], FREE)
    held = {row.key.name: row.held_ns for row in found.rows if row.key}
    assert held == {"web": 4 * S, "ml": 20 * S}


def test_t11_a_container_that_is_better_known_is_reported_of_once(ledger: Kept) -> None:
    """Its name held the device, its uid used it; then a source tells that both are one pod."""
    node = Watched()
    node.kubelet(listed("a", A))
    node.look(0, use(A, 0, None))
    for when in (2, 4):
        node.look(when, use(A, when, when - 2, ran_by(ids("a"), busy=S), busy=S))
        note(ledger, node)
    node.seconds = 5
    node.pods(pod("a", started=-100))
    node.look(6, use(A, 6, 4, ran_by(ids("a"), busy=S), busy=S))
    note(ledger, node)
    node.seconds = 7
    node.delete("a")
    node.look(8, use(A, 8, 6, ran_by(ids("a"), kind="", busy=S), busy=S))
    note(ledger, node)
    [total] = ledger.rows("SELECT sum(held_ns), sum(busy_ns) FROM hours WHERE container != 0")
    assert total == (7 * S, 4 * S)
    rows = ledger.rows(
        "SELECT c.uid, c.pod, c.container, h.held_ns, h.busy_ns, h.counted_ns + h.gap_ns"
        " FROM holdings h JOIN containers c ON c.id = h.container"
    )
    assert rows == [(uid_of("a"), "a", "main", 7 * S, 4 * S, 7 * S)]
