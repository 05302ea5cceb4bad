"""A ledger of a year of short jobs, written through the ledger's own store."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pipeline.ledger.schema import HOUR_NS
from pipeline.ledger.write_batch import Batch, HoldingRow
from pipeline.model import Instant, PodInfo
from tests.pipeline.ledger.open_ledger import OpenLedger, moved
from tests.support.nodes import START, gpu, uuid_of
from tests.support.usage import holding

CARDS: Final = 8
HOURS: Final = 8760
HALF_NS: Final = HOUR_NS // 2
ENERGY_MJ: Final = 1_000_000

_FIRST: Final = START.wall_ns // HOUR_NS - HOURS
_AT_ONCE: Final = 5000


def write_year(path: Path, holdings: int) -> Path:
    """Write as many holdings: each half an hour of a card, of which half is busy."""
    kept = OpenLedger(path)
    for batch in _batches(holdings):
        kept.store.write_batch(batch)
    kept.close()
    return path


def _batches(holdings: int) -> Iterator[Batch]:
    batch = Batch(devices={uuid_of(n): gpu(n) for n in range(CARDS)})
    for n in range(holdings):
        hour, card = _FIRST + n * HOURS // holdings, uuid_of(n % CARDS)
        start = Instant(hour * HOUR_NS, hour * HOUR_NS)
        team, pod = f"team-{n % 40}", f"job-{n}"
        info = PodInfo(f"u-{n}", team, pod, owner_kind="Job", owner_name=f"j{n % 500}")
        one = holding(
            pod,
            card,
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
        batch.add(hour, card, one.subject, (HALF_NS, HALF_NS // 2, ENERGY_MJ))
        if n % _AT_ONCE == _AT_ONCE - 1 or n == holdings - 1:
            yield batch
            batch = Batch()
