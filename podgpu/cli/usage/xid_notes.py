"""The lines below the table of holdings that say what its XID codes mean and what to do."""

from collections.abc import Iterable, Iterator

from pipeline.fields.xid_catalogue import sentence
from pipeline.ledger.queries import HoldingRecord


def xid_notes(holdings: Iterable[HoldingRecord]) -> Iterator[str]:
    """Yield a line for each XID code in holdings, in the order of the codes."""
    for code in sorted({code for one in holdings for code, _ in one.xids}):
        yield f"XID {code}: {sentence(code) or 'not in the catalogue of XID codes'}"
