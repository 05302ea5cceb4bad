"""Delivery of points during and after outages of the receiver."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.delivery.contract import SHUTDOWN
from tests.e2e.certificates import Certificates
from tests.e2e.collector import Collector
from tests.e2e.conftest import Collect
from tests.e2e.otlp_podgpu import PLAYED, Account, Pusher, push, pushing
from tests.e2e.processes import free_ports, wait_until
from tests.e2e.queue_content import kept
from tests.e2e.received_points import arrived, check_nothing_lost, powers, thinned, written

OUTAGE = float(os.environ.get("PODGPU_E2E_OUTAGE", "20"))
"""Duration of the outage in seconds; minutes in a long run."""

GRACE = 5.0
"""The configured shutdown grace in seconds."""

FLAT = 24 * 2**20
"""Maximum growth of memory in an outage of any length, in bytes."""

BOTH = pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])


def sinks(
    collector: Collector, protocol: str, folder: Path, **more: Any
) -> dict[str, dict[str, object]]:
    """Return a sink `otlp`, and a sink `jsonl` that records what has to be sent."""
    return {
        "otlp": push(collector.url(protocol), protocol, queue=folder / "queue", **more),
        "lines": {"kind": "jsonl", "path": str(folder / "lines.jsonl")},
    }


def resident(pusher: Pusher) -> int:
    """Return the resident memory in bytes."""
    assert pusher.process is not None
    status = Path(f"/proc/{pusher.process.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


@BOTH
@pytest.mark.timeout(180 + 3 * OUTAGE)
def test_d1_an_outage_of_the_collector_loses_no_point(
    collector: Collector, tmp_path: Path, protocol: str
) -> None:
    accounts: list[Account] = []
    memory: list[int] = []
    both = sinks(collector, protocol, tmp_path, size="512MiB")
    with pushing(tmp_path / "podgpu", both) as pusher:
        wait_until(lambda: len(collector.points()) > 100, "points")
        # While requests are sent, as far as this can be arranged.
        collector.kill()
        before = collector.count()
        down = time.monotonic()
        while time.monotonic() - down < OUTAGE:
            accounts.append(pusher.wait_account())
            memory.append(resident(pusher))
            time.sleep(min(1.0, OUTAGE / 20))
        assert not accounts[-1].delivering
        assert accounts[-1].queued > accounts[len(accounts) // 2].queued > 0
        assert accounts[-1].oldest_age > OUTAGE * 0.8
        assert {account.writable for account in accounts} == {True}
        assert max(memory) - memory[0] < FLAT
        collector.start()
        up = time.monotonic()
        pusher.wait_drained(seconds=60 + OUTAGE)
        drained = time.monotonic() - up
        pusher.stop()
    found = arrived(collector.requests())
    check_nothing_lost(found, kept(tmp_path / "queue"), written(tmp_path / "lines.jsonl"))
    # Only the requests in flight at the kill may arrive twice.
    assert found.resent <= {before - 1}
    print(
        f"\nD1 by {protocol}: {OUTAGE:g} s of outage, {accounts[-1].queued} points in "
        f"{accounts[-1].queue_bytes} bytes waited, gone {drained:.1f} s after; "
        f"{len(found.points)} points, none lost, {len(found.duplicates)} twice; "
        f"memory {memory[0] / 2**20:.1f} to {max(memory) / 2**20:.1f} MiB"
    )


def test_d1_queued_points_are_sent_before_new_ones(collector: Collector, tmp_path: Path) -> None:
    collector.stop()
    with pushing(tmp_path / "podgpu", sinks(collector, "grpc", tmp_path)) as pusher:
        wait_until(lambda: pusher.wait_account().queued > 500, "a queue", every=0.2)
        collector.start()
        pusher.wait_drained()
        pusher.stop()
    spans = [
        (min(times), max(times))
        for times in (
            [point.time_ns for point in request.points] for request in collector.requests()
        )
    ]
    assert len(spans) > 1
    # Requests are in the order of time.
    assert [begin for begin, _ in spans] == sorted(begin for begin, _ in spans)
    check_nothing_lost(
        arrived(collector.requests()), kept(tmp_path / "queue"), written(tmp_path / "lines.jsonl")
    )


def test_d2_a_full_queue_drops_the_oldest_points(collector: Collector, tmp_path: Path) -> None:
    budget = 2**20
    collector.stop()
    both = sinks(collector, "grpc", tmp_path, size="1MiB")
    fast = {"node": {**PLAYED, "speed": 15.0}}
    sizes: list[int] = []

    def over() -> bool:
        account = pusher.wait_account()
        sizes.append(account.queue_bytes)
        return sum(account.dropped.values()) > account.queued / 2

    with pushing(tmp_path / "podgpu", both, sources=fast) as pusher:
        wait_until(over, "drops", seconds=90, every=0.2)
        assert budget / 2 < max(sizes) <= budget
        collector.start()
        pusher.wait_drained()
        pusher.stop()
    found, left = arrived(collector.requests()), kept(tmp_path / "queue")
    assert left.points == 0
    assert left.totals.rejected == {}
    assert left.totals.dropped.keys() == {"queue_over_size"}
    assert left.totals.acked == len(found.points)
    assert left.totals.appended == left.totals.acked + left.totals.dropped["queue_over_size"]
    # The newest points have arrived, and so have the points that were already in flight when the
    # queue was full. Points between them were dropped. This repeats if new points arrive faster
    # than old ones are sent.
    lines = written(tmp_path / "lines.jsonl")
    for uuid, there in powers(found.points.values()).items():
        assert thinned(there, lines[uuid])
        newest = len(there) // 4
        assert there[-newest:] == lines[uuid][-newest:]
    found.check_order()
    print(
        f"\nD2: {left.totals.dropped['queue_over_size']} of {left.totals.appended} points dropped, "
        f"the queue took {max(sizes)} bytes at most"
    )


@BOTH
def test_o11_a_stop_in_an_outage_is_quick_and_keeps_queued_points(
    collector: Collector, tmp_path: Path, protocol: str
) -> None:
    collector.stop()
    both = sinks(collector, protocol, tmp_path)
    with pushing(tmp_path / "podgpu", both, more={"shutdown_grace": f"{GRACE:g}s"}) as pusher:
        wait_until(lambda: pusher.wait_account().queued > 300, "a queue", every=0.2)
        asked = time.monotonic()
        pusher.stop()
        took = time.monotonic() - asked
        assert took < GRACE + 2
        assert "Traceback" not in pusher.output()
        left = kept(tmp_path / "queue").totals
        assert (left.acked, left.rejected, left.dropped) == (0, {}, {})
        assert left.queued == left.appended > 300
        collector.start()
        pusher.start()
        assert pusher.wait_account().recovered == left.queued
        pusher.wait_drained()
        pusher.stop()
    found = arrived(collector.requests())
    assert not found.duplicates
    check_nothing_lost(found, kept(tmp_path / "queue"), written(tmp_path / "lines.jsonl"))
    print(
        f"\nO11 by {protocol}: ended after {took:.2f} s, {left.queued} points kept and sent later"
    )


@pytest.mark.parametrize("lasting", [True, False], ids=["disk", "memory"])
def test_o11_a_sink_changed_in_an_outage_keeps_or_counts_queued_points(
    collector: Collector, tmp_path: Path, *, lasting: bool
) -> None:
    """A queue in a folder survives the change; a queue in memory is counted as dropped."""
    queue = tmp_path / "queue" if lasting else None
    collector.stop()
    with pushing(tmp_path / "podgpu", {"otlp": push(collector.grpc_url, queue=queue)}) as pusher:
        waited = wait_until(
            lambda: account if (account := pusher.wait_account()).queued > 300 else None,
            "a queue",
            every=0.2,
        )
        pusher.reconfigure({"otlp": push(collector.grpc_url, queue=queue, timeout="4s")})
        after = pusher.wait_account()
        assert after.produced >= waited.produced
        if lasting:
            assert after.dropped == {}
            assert after.queued >= waited.queued
        else:
            assert after.dropped.keys() == {SHUTDOWN}
            assert after.dropped[SHUTDOWN] >= waited.queued
        collector.start()
        # Points produced since the change must have arrived, and there may be none yet.
        wait_until(lambda: pusher.wait_account().emitted, "an emitted point", every=0.2)
        end = pusher.wait_drained()
        assert end.dropped == after.dropped
        pusher.stop()
    points = arrived(collector.requests()).points
    assert len(points) >= end.emitted >= 1
    if lasting:
        assert kept(tmp_path / "queue").totals.acked == len(points)


def test_o10_a_dead_receiver_does_not_affect_the_other_sink(
    collector: Collector, tmp_path: Path
) -> None:
    (no_one,) = free_ports(1)
    url, queue = f"http://127.0.0.1:{no_one}", tmp_path / "dead"
    # Only readings, because the two sinks send podgpu's own metrics at different times.
    alone = {"telemetry_interval": "0s"}
    dead = push(url, "http/protobuf", queue=queue, **alone)
    both = {**sinks(collector, "grpc", tmp_path, **alone), "dead": dead}
    ages: list[float] = []
    with pushing(tmp_path / "podgpu", both) as pusher:
        wait_until(lambda: pusher.wait_account("dead").queued > 1000, "a queue", every=0.2)
        wait_until(lambda: pusher.wait_account().delivering, "deliveries", every=0.2)
        for _ in range(10):
            account = pusher.wait_account()
            assert account.delivering
            assert (account.rejected, account.dropped) == ({}, {})
            ages.append(account.oldest_age)
            time.sleep(0.2)
        other = pusher.wait_account("dead")
        assert not other.delivering
        assert (other.emitted, other.dropped) == (0, {})
        pusher.stop()
    # Both sinks got the same points: one delivered all of them, the other has queued all of them.
    assert kept(queue).points == len(arrived(collector.requests()).points)
    assert max(ages) < 5
    check_nothing_lost(
        arrived(collector.requests()), kept(tmp_path / "queue"), written(tmp_path / "lines.jsonl")
    )
    print(
        f"\nO10: with a dead receiver next to it, the oldest point waited {max(ages):.2f} s at most"
    )


@BOTH
def test_o7_renewed_certificates_lose_no_point(
    collect: Collect, tmp_path: Path, protocol: str
) -> None:
    certificates = Certificates(tmp_path / "tls")
    collector = collect(tls=certificates.receiver)
    both = sinks(collector, protocol, tmp_path, tls=certificates.sender)
    with pushing(tmp_path / "podgpu", both) as pusher:
        wait_until(lambda: collector.count() > 3, "deliveries")
        collector.stop()
        certificates.renew()
        taken = collector.count()
        collector.start()
        # The same process reads the files again.
        wait_until(lambda: collector.count() > taken + 3, "new deliveries")
        pusher.wait_drained()
        pusher.stop()
    check_nothing_lost(
        arrived(collector.requests()), kept(tmp_path / "queue"), written(tmp_path / "lines.jsonl")
    )
