"""Rows for tests of the archive."""

from pipeline.archive.row_columns import Row

LEDGER = "0123456789abcdef"


def usage_row(serial: int, **values: str | int | None) -> Row:
    """Return a row of usage, with other values if given."""
    return {
        "cluster": "prod",
        "node": "node-1",
        "ledger": LEDGER,
        "serial": serial,
        "row": "usage",
        "day": "2026-11-30",
        "hour": f"{values.get('day', '2026-11-30')}T12:00:00Z",
        "device": "GPU-1",
        "gpu": "GPU-1",
        "model": "NVIDIA H200",
        "profile": "",
        "held_ns": 1_800_000_000_000,
        **values,
    }
