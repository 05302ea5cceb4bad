"""Format holdings as JSON and CSV, in base units and with full precision."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from pipeline.ledger.queries import HoldingRecord
from pipeline.model.usage_window import UsageWindow
from podgpu.cli.usage.report_formats import VERSION, csv_text, joules, seconds
from podgpu.cli.usage.time_span import exact


def holdings_document(window: UsageWindow, holdings: Sequence[HoldingRecord]) -> dict[str, Any]:
    """Return the holdings as a JSON document. docs/reports.md describes its keys."""
    return {
        "version": VERSION,
        "node": window.node,
        "since": exact(window.start_ns),
        "until": exact(window.end_ns),
        "holdings": [_row(one) for one in holdings],
    }


def holdings_csv(holdings: Sequence[HoldingRecord]) -> str:
    """Return the holdings as CSV, one in each line."""
    rows = [{**_row(one), "xids": _xids(one)} for one in holdings]
    return csv_text(_KEYS, [list(row.values()) for row in rows])


def _row(one: HoldingRecord) -> dict[str, Any]:
    account = one.container
    subject = account.subject
    return {
        "namespace": subject.namespace or None,
        "pod": subject.pod or None,
        "container": subject.container or None,
        "pod_uid": subject.uid or None,
        "owner_kind": account.owner_kind or None,
        "owner_name": account.owner_name or None,
        "device": one.device,
        "start": exact(one.start_ns),
        "end": None if one.end_ns is None else exact(one.end_ns),
        "until": exact(one.until_ns),
        "source": one.source or None,
        "evidence": one.evidence or None,
        "counted_seconds": seconds(one.counted_ns),
        "gap_seconds": seconds(one.gap_ns),
        "held_seconds": seconds(one.held_ns),
        "busy_seconds": seconds(one.busy_ns),
        "energy_joules": joules(one.energy_mj),
        "memory_peak_bytes": one.memory_peak_bytes,
        "memory_mean_bytes": one.memory_mean_bytes,
        "busy_mean_ratio": _ratio(one.busy_mean_ppm),
        "busy_peak_ratio": _ratio(one.busy_peak_ppm),
        "xids": [{"code": code, "count": count} for code, count in one.xids],
    }


_KEYS = (
    "namespace",
    "pod",
    "container",
    "pod_uid",
    "owner_kind",
    "owner_name",
    "device",
    "start",
    "end",
    "until",
    "source",
    "evidence",
    "counted_seconds",
    "gap_seconds",
    "held_seconds",
    "busy_seconds",
    "energy_joules",
    "memory_peak_bytes",
    "memory_mean_bytes",
    "busy_mean_ratio",
    "busy_peak_ratio",
    "xids",
)


def _ratio(ppm: int | None) -> Decimal | None:
    return None if ppm is None else Decimal(ppm) / 1_000_000


def _xids(one: HoldingRecord) -> str:
    """Return `CODE:COUNT` for each XID, separated by blanks."""
    return " ".join(f"{code}:{count}" for code, count in one.xids)
