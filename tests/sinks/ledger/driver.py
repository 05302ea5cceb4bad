"""A podgpu with only a join and a ledger sink, run as a process so that a test can kill it.

The join and the sink are real, in real time. Each usage sample of the device depends only on its
time, so that two of these processes get the same samples.

    python -m tests.sinks.ledger.driver FILE UNTIL_NS

It prints `sampled` after its second sample, and ends at that Unix time.
"""

import asyncio
import sys
from pathlib import Path
from secrets import token_hex

from config.value_types import Duration
from pipeline.base.channels import Channel
from pipeline.base.clock import SystemClock
from pipeline.join import Join
from pipeline.model import (
    NS,
    Claim,
    ClaimsReplaced,
    DevicesDiscovered,
    DeviceUse,
    Envelope,
    Event,
    Evidence,
    Instant,
    Origin,
    PartialRef,
    ProcessesSampled,
    ProcessUse,
    RawDeviceId,
    Snapshot,
    SourceAdded,
)
from sinks.ledger.options import Options
from sinks.ledger.sink import LedgerSink
from tests.support.nodes import gpu
from tests.support.sinks import FakeSinkContext

DEVICE = gpu(0)
SAMPLE_INTERVAL = 0.02
COMMIT_INTERVAL = 0.1
SLOT_NS = 2 * NS
"""How long each pod holds the device."""
WATTS = 300
BUSY = 40
"""The device is busy for this percentage of the time."""


def busy_ns(wall_ns: int) -> int:
    return wall_ns * BUSY // 100


def pod_at(wall_ns: int) -> PartialRef:
    number = wall_ns // SLOT_NS
    return PartialRef("ml", f"pod-{number}", "main", f"u-{number}")


class Node:
    """Send events to the join."""

    def __init__(self) -> None:
        # As podgpu does: no two runs share ids.
        self.join = Join(token_hex(8))
        self._clock = SystemClock()
        self._seq = 0
        self._before: Instant | None = None
        self._pod = PartialRef()

    def put(self, source: str, kind: str, event: Event) -> None:
        self._seq += 1
        self.join.apply(Envelope(source, kind, self._seq, self._clock.now(), event))

    def start(self) -> None:
        for order, source in enumerate(("nvml", "runtime")):
            self.put(source, source, SourceAdded(order))
        self.put("nvml", "nvml", DevicesDiscovered((DEVICE,)))

    def sample(self) -> Snapshot:
        now, since = self._clock.now(), self._before
        pod = pod_at(now.wall_ns)
        if pod != self._pod:
            self._pod = pod
            ids = (RawDeviceId("uuid", DEVICE.uuid),)
            claim = Claim(pod, ids, None, None, Origin(Evidence.RUNTIME_CDI))
            self.put("runtime", "runtime", ClaimsReplaced((claim,), 3600 * NS))
        busy = None if since is None else busy_ns(now.wall_ns) - busy_ns(since.wall_ns)
        process = ProcessUse(7, 7, pod, "compute", 1 << 30, busy)
        use = DeviceUse(
            device=DEVICE.uuid,
            at=now,
            since=since,
            processes=(process,),
            memory_used_bytes=2 << 30,
            memory_reserved_bytes=1 << 20,
            busy_ns=busy,
            energy_mj=now.wall_ns // 1000 * WATTS // 1000,
            good_for_ns=60 * NS,
        )
        self._before = now
        self.put("nvml", "nvml", ProcessesSampled((use,)))
        return self.join.snapshot(now)


async def main(path: Path, until_ns: int) -> None:
    node, inbox = Node(), Channel[Snapshot](1)
    options = Options(path=path, commit_interval=Duration(COMMIT_INTERVAL))
    sink = LedgerSink(options, FakeSinkContext("usage"))
    async with sink:
        stored = await sink.stored_usage()
        if stored is not None:
            node.put("usage", "ledger", stored)
        node.start()
        running = asyncio.create_task(sink.run(inbox))
        samples = 0
        while (snapshot := node.sample()).at.wall_ns < until_ns:
            inbox.offer(snapshot)
            samples += 1
            if samples == 2:
                print("sampled", flush=True)
            await asyncio.sleep(SAMPLE_INTERVAL)
        inbox.close()
        await running


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
