"""Write a ledger of a year of short jobs, through the ledger's store."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pipeline.ledger.schema import HOUR_NS
from pipeline.ledger.usage_delta import Amounts
from pipeline.ledger.write_batch import Batch, HoldingRow
from pipeline.model import Instant, PodInfo
from tests.pipeline.ledger.open_ledger import OpenLedger, moved
from tests.support.nodes import START, gpu, uuid_of
from tests.support.usage import holding

GPUS: Final = 8
HOURS: Final = 8760
HALF_NS: Final = HOUR_NS // 2
ENERGY_MJ: Final = 1_000_000

_FIRST: Final = START.wall_ns // HOUR_NS - HOURS
_BATCH_SIZE: Final = 5000


def write_year(path: Path, holdings: int) -> Path:
    """Write this many holdings: half an hour of a GPU each, busy for half of that time."""
    ledger = OpenLedger(path)
    for batch in _batches(holdings):
        ledger.store.write_batch(batch)
    ledger.close()
    return path


def _batches(holdings: int) -> Iterator[Batch]:
    batch = Batch(devices={uuid_of(n): gpu(n) for n in range(GPUS)})
    for n in range(holdings):
        hour, device = _FIRST + n * HOURS // holdings, uuid_of(n % GPUS)
        start = Instant(hour * HOUR_NS, hour * HOUR_NS)
        team, pod = f"team-{n % 40}", f"job-{n}"
        info = PodInfo(f"u-{n}", team, pod, owner_kind="Job", owner_name=f"j{n % 500}")
        one = holding(
            pod,
            device,
            namespace=team,
            uid=info.uid,
            start=start,
            end=moved(start, HALF_NS / 1e9),
            busy=HALF_NS // 2,
            energy=ENERGY_MJ,
            info=info,
        )
        batch.pods[one.subject] = info
        batch.holdings[one.id] = HoldingRow(one, start.wall_ns, start.wall_ns + HALF_NS)
        batch.add(hour, device, one.subject, Amounts(HALF_NS, HALF_NS // 2, ENERGY_MJ, 0, 0))
        if n % _BATCH_SIZE == _BATCH_SIZE - 1 or n == holdings - 1:
            yield batch
            batch = Batch()
