"""What an archive costs the daemon: memory and time of commits, with and without one."""

import subprocess
import sys
from pathlib import Path

import pytest

_WRITER = """
import sys, time
from pathlib import Path
from pipeline.ledger.sealing import seal
from pipeline.ledger.usage_delta import Amounts
from pipeline.ledger.write_batch import HoldingRow, Batch
from pipeline.model import Instant
from sinks.ledger.ledger_file import LedgerFile
from sinks.ledger.options import Options
from tests.support.nodes import START, gpu, uuid_of
from tests.support.usage import holding

path, has_archive = Path(sys.argv[1]), sys.argv[2] == "archive"
hour = START.wall_ns // 3_600_000_000_000
now = Instant(START.mono_ns, START.wall_ns)
file = LedgerFile(Options(path=path), "node-1", lambda: now)
file.open()
if has_archive:
    seal(file._store.connection, "east", "node-1", START.wall_ns)
spent = 0
for number in range(600):
    now = Instant(START.mono_ns + number * 5 * 10**9, START.wall_ns + number * 5 * 10**9)
    batch = Batch(devices={uuid_of(n): gpu(n) for n in range(8)})
    for device in range(8):
        for pod in range(20):
            one = holding(f"p{device}-{pod}", uuid_of(device), until=now, own_id=f"{device}-{pod}")
            batch.holdings[one.id] = HoldingRow(one, START.wall_ns, now.wall_ns)
            batch.add(hour, uuid_of(device), one.subject, Amounts(5, 4, 3, 2, 1))
    begin = time.process_time_ns()
    file.put(batch)
    spent += time.process_time_ns() - begin
file.close()
status = dict(line.split(":") for line in open("/proc/self/status"))
heavy = [name for name in ("duckdb", "obstore") if name in sys.modules]
assert not heavy
print(status["VmHWM"].split()[0], spent // 600)
"""


def _measured(folder: Path, mode: str) -> tuple[int, int]:
    """Return the peak memory in KiB, and the CPU time of a commit in nanoseconds."""
    command = [sys.executable, "-c", _WRITER, str(folder / f"{mode}.db"), mode]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    peak, spent = map(int, done.stdout.split())
    return peak, spent


@pytest.mark.timeout(300)
def test_an_archive_costs_the_daemon_no_memory(tmp_path: Path) -> None:
    """600 commits with eight GPUs and 160 holdings each."""
    without, spent_without = _measured(tmp_path, "none")
    with_one, spent = _measured(tmp_path, "archive")
    print(
        f"\npeak memory: {without} KiB without an archive, {with_one} KiB with one; "
        f"a commit: {spent_without / 1e6:.2f} ms without, {spent / 1e6:.2f} ms with"
    )
    assert with_one - without < 1024
    assert spent < 2 * spent_without
