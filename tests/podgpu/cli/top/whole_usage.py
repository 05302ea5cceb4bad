"""Usage of a day and of four weeks, with gaps, unknown values and sample data."""

from datetime import datetime, timedelta
from math import sin
from typing import Any

from pipeline.status_page.usage_format import (
    AmountsStatus,
    DayStatus,
    DeviceAmountsStatus,
    PeriodStatus,
    PodAmountsStatus,
    UsageStatus,
)


def _amounts(
    held: float, busy: float | None, energy: float | None, error: float | None = 0
) -> dict[str, Any]:
    return {
        "held_seconds": held * 3600,
        "free_seconds": max(24 - held, 0) * 3600,
        "unknown_seconds": 0.0,
        "allocated_ratio": min(held / 24, 1.0),
        "used_ratio": None if busy is None else busy / 24,
        "busy_seconds": None if busy is None else busy * 3600,
        "busy_error_seconds": None if error is None else error * 3600,
        "idle_seconds": None if busy is None else (held - busy) * 3600,
        "energy_joules": None if energy is None else energy * 3.6e6,
        "holdings": 1,
        "incomplete": busy is None,
    }


def _period(since: datetime, length: timedelta, busy: float, held: float) -> PeriodStatus:
    whole = 9 * length.total_seconds()
    return PeriodStatus(
        since=since,
        until=since + length,
        allocated_ratio=held,
        used_ratio=busy,
        busy_seconds=whole * busy,
        idle_seconds=whole * (held - busy),
        free_seconds=whole * (1 - held),
        unknown_seconds=0.0,
        energy_joules=whole * 400,
    )


def whole_usage(now: datetime) -> UsageStatus:
    """Return the usage of a day and of four weeks that end at a time."""
    hours = tuple(
        _period(now.replace(minute=0) - timedelta(hours=h), timedelta(hours=1),
                0.5 + 0.3 * sin(h / 4), 0.8)
        for h in reversed(range(24)) if h not in {9, 10}
    )  # fmt: skip
    days = tuple(
        _period(now.replace(hour=0, minute=0) - timedelta(days=d), timedelta(days=1),
                0.4 + 0.3 * sin(d / 3), 0.75)
        for d in reversed(range(26))
    )  # fmt: skip
    return UsageStatus(
        sink="usage",
        age_seconds=42.0,
        error=None,
        day=DayStatus(
            since=now.replace(minute=0) - timedelta(hours=24),
            until=now,
            accounted_seconds=200 * 3600.0,
            gap_seconds=16 * 3600.0,
            pods=(
                PodAmountsStatus(
                    namespace="research", pod="llama-train-0", uid="u", **_amounts(48, 40, 28.1)
                ),
                PodAmountsStatus(
                    namespace="chat", pod="assistant-0", uid="u", **_amounts(24, None, None)
                ),
            ),
            others=AmountsStatus(**_amounts(30, 11, 7.5, 0.3)),
            pods_left_out=14,
            unattributed=AmountsStatus(**_amounts(0, 0.4, 0.1, None)),
            total=AmountsStatus(**_amounts(16, 10, 40.0)),
            devices=(
                DeviceAmountsStatus(
                    uuid="GPU-00000000-5eed-4a5e-9c0d-100000000000",
                    name="NVIDIA H200",
                    **_amounts(24, 20, 14.0),
                ),
            ),
        ),
        hours=hours,
        days=days,
        sample_data="podgpu demo",
    )
