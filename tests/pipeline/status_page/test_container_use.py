"""What holders, other containers and processes use of a device, in the document."""

from dataclasses import replace

from pipeline.model import (
    NS,
    DeviceUsage,
    GpuProcess,
    ProcessList,
    SamplesTaken,
    Snapshot,
    Usage,
)
from pipeline.status_page.daemon_state import date
from pipeline.status_page.device_status import MOST_PROCESSES
from pipeline.status_page.document_builder import status_of
from pipeline.status_page.status_document import GpuStatus, HolderStatus
from tests.pipeline.status_page.scenes import report_claims, started_node, status_input
from tests.support.nodes import START, at, gpu, kubelet_claim, uuid_of
from tests.support.usage import holding, used

GIB = 1 << 30


def account(*containers: object) -> Usage:
    """Return the usage accounts of GPU 0 with these containers."""
    known = (START, at(10), containers, None, None, None, None, None, 0, 0, None, None)
    return Usage({uuid_of(0): DeviceUsage(uuid_of(0), *known)})  # type: ignore[arg-type]


def shown(usage: Usage | None, *pods: str) -> GpuStatus:
    node = started_node()
    node.has(gpu(0))
    report_claims(node, *(kubelet_claim(pod, f"{uuid_of(0)}::{n}") for n, pod in enumerate(pods)))
    known = status_input(node, now=at(10))
    assert isinstance(known.snapshot, Snapshot)
    snapshot = replace(known.snapshot, usage=usage)
    [found] = status_of(replace(known, snapshot=snapshot)).gpus or ()
    return found


def test_each_holder_has_its_own_use() -> None:
    now = holding("a", gpu(0), uid="", energy=9_000, until=at(10))
    busy = replace(used("a", uid="", memory=3 * GIB, energy=99_000), recent_busy_ppm=412_300)
    found = shown(account(replace(busy, holding=now), used("b", uid="")), "a", "b", "c")
    uses = {one.pod: one.use for one in found.holders or ()}
    assert uses["a"] is not None
    # The energy is that of the present holding, not of earlier ones.
    assert (uses["a"].busy_percent, uses["a"].memory_used_bytes) == (41.2, 3 * GIB)
    assert uses["a"].energy_joules == 9
    assert uses["b"] is not None
    assert (uses["b"].busy_percent, uses["b"].memory_used_bytes) == (None, None)
    assert uses["b"].energy_joules is None
    assert uses["c"] is None


def test_without_accounts_the_use_is_null() -> None:
    [holder] = shown(None, "a").holders or ()
    assert holder.use is None


def test_a_container_that_uses_the_device_without_holding_it() -> None:
    found = shown(
        account(
            used("a", uid="", memory=GIB),
            used("stray", uid="", memory=2 * GIB),
            used("idle", uid="", memory=0),
            used("ended", uid="", memory=GIB, ended=at(5)),
        ),
        "a",
    )
    assert [(one.pod, one.use.memory_used_bytes) for one in found.users] == [("stray", 2 * GIB)]


def test_processes_are_listed_with_the_largest_first() -> None:
    node = started_node()
    node.has(gpu(0), gpu(1))
    running = tuple(GpuProcess(pid, "compute", pid * GIB) for pid in range(MOST_PROCESSES + 3))
    unknown = GpuProcess(7_000, "mps", None)
    node.say(SamplesTaken((), (ProcessList(uuid_of(0), (*running, unknown), START, 10**12),)))
    first, second = status_of(status_input(node)).gpus or ()
    assert first.processes is not None
    assert first.processes[0].memory_used_bytes == (MOST_PROCESSES + 2) * GIB
    assert (len(first.processes), first.processes_left_out) == (MOST_PROCESSES, 4)
    assert second.processes is None


def with_holding(start: float, gap_ns: int = 0) -> HolderStatus:
    """Return holder `a` of GPU 0, whose claim begins at 0 s, with a holding that began before."""
    now = replace(holding("a", gpu(0), uid="", start=at(start), energy=9_000), gap_ns=gap_ns)
    [holder] = shown(account(replace(used("a", uid=""), holding=now)), "a").holders or ()
    return holder


def test_the_age_of_a_holder_is_that_of_its_energy() -> None:
    """A claim that is replaced by a later one, without a pause, continues the holding."""
    first = date(at(-3600).wall_ns)
    assert (with_holding(-3600).since, with_holding(3600).since) == (first, date(START.wall_ns))


def test_energy_that_lacks_a_part_of_the_time_is_incomplete() -> None:
    found = [with_holding(-3600, gap_ns=seconds * NS).use for seconds in (0, 59, 600)]
    assert [use.incomplete for use in found if use is not None] == [False, False, True]
