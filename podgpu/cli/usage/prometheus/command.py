"""The usage in a span of time from a Prometheus server, grouped for a report."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from pipeline.base.errors import TransientError
from pipeline.ledger.reports import GroupBy, GroupedUsage, Tariff, choose_device
from pipeline.ledger.reports.groups import GroupKey, group_keys
from pipeline.ledger.reports.window_groups import grouped
from pipeline.model.ledger_usage import DeviceTotal, UsageWindow
from podgpu.cli.usage.prometheus.coverage import HOUR_MS, Level
from podgpu.cli.usage.prometheus.http_api import PrometheusApi, TooLargeError
from podgpu.cli.usage.prometheus.label_key import label_names
from podgpu.cli.usage.prometheus.reader import UsageReader, Wanted
from podgpu.cli.usage.prometheus.server_options import Server
from podgpu.cli.usage.prometheus.usage_rows import combined

_MS_NS: Final = 10**6
_OF_CONTAINERS: Final = ("pod", "workload", "label")


@dataclass(frozen=True, slots=True)
class PrometheusUsage:
    """The usage that a server has.

    Attributes:
        window: the span and its devices, without usage rows.
        usage: the usage by group, as `report_of_groups` needs it.
        notes: sentences about what the report was made from, and how exact it is.
    """

    window: UsageWindow
    usage: Sequence[GroupedUsage]
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class ReportSpan:
    """What a report is about.

    Attributes:
        start_ns: start, in nanoseconds of Unix time.
        end_ns: end, at most the present time.
        now_ns: the present time.
        by: the grouping.
        cluster_label: the label that names the cluster of a node.
        device: the only device of the report, as `choose_device` accepts it; None for all.
    """

    start_ns: int
    end_ns: int
    now_ns: int
    by: GroupBy
    cluster_label: str = "cluster"
    device: str | None = None


def prometheus_usage(server: Server, span: ReportSpan, prices: Tariff) -> PrometheusUsage:
    """Return the usage of whole hours from a server.

    Raises:
        TransientError: the server does not respond, or has no usage in the span.
        PermanentError: the server refuses the request.
        DeviceChoiceError: there is no such device.
    """
    try:
        return asyncio.run(_read(server, span, prices))
    except TooLargeError as error:
        raise TransientError(f"{error}; give a longer --query-timeout") from None


async def _read(server: Server, span: ReportSpan, prices: Tariff) -> PrometheusUsage:
    start_ms = span.start_ns // _MS_NS // HOUR_MS * HOUR_MS
    end_ms = -(-span.end_ns // _MS_NS // HOUR_MS) * HOUR_MS
    now_ms = span.now_ns // _MS_NS
    label = (span.by.label, label_names(span.by.label)) if span.by.kind == "label" else None
    wanted = Wanted(span.cluster_label, span.by.kind in _OF_CONTAINERS, label)
    edges = [
        start_ms,
        *(at for each in prices.changes if start_ms < (at := each // _MS_NS) < end_ms),
        end_ms,
    ]
    rows, totals = [], []
    async with PrometheusApi(server) as api:
        reader = UsageReader(api, wanted, now_ms)
        await reader.prepare(end_ms)
        for start, end in pairwise(edges):
            sums = await reader.read(start, end)
            rows += sums.rows(start * _MS_NS if prices.changes else 0)
            totals.append(sums.totals((min(end, now_ms) - start) * _MS_NS))
    if not rows:
        raise TransientError(
            f"{server.url}: has no usage of podgpu from {_utc(start_ms)} to {_utc(end_ms)} UTC; "
            "check that the server scrapes podgpu (docs/sinks/prometheus.md), and the time span"
        )
    devices = combined(totals)
    nodes = {(one.cluster, one.node) for one in devices}
    window = UsageWindow(
        node=next(iter(nodes))[1] if len(nodes) == 1 else "",
        start_ns=start_ms * _MS_NS,
        end_ns=min(end_ms, now_ms // 60_000 * 60_000) * _MS_NS,
        usage=tuple(rows),
        totals=tuple(devices),
        gaps=(),
    )
    if span.device is not None:
        window = choose_device(window, span.device)
    usage = _grouped(window, span.by)
    notes = [*_notes(server, reader), *(f"{server.url}: {text}" for text in api.warnings)]
    return PrometheusUsage(replace(window, usage=()), usage, notes)


def _grouped(window: UsageWindow, by: GroupBy) -> list[GroupedUsage]:
    clusters = {one.device: one.cluster for one in window.totals}
    if by.kind not in ("node", "cluster"):
        return grouped(window, by)
    by_device = grouped(window, GroupBy("device"))
    parts = {one.device: _place(by, one) for one in window.totals}
    keys = {key.parts: key for key in group_keys(by, dict.fromkeys(parts.values()), window.totals)}
    return [_moved(one, keys, parts, clusters) for one in by_device]


def _moved(
    one: GroupedUsage,
    keys: Mapping[tuple[str | None, ...], GroupKey],
    parts: Mapping[str, tuple[str | None, ...]],
    clusters: Mapping[str, str],
) -> GroupedUsage:
    """Return the usage of a device as that of its node or cluster."""
    device = str(one.key.parts[-2]) if one.key is not None else ""
    price = replace(one.price, cluster=clusters.get(device, ""))
    return replace(one, key=keys[parts[device]], price=price)


def _place(by: GroupBy, one: DeviceTotal) -> tuple[str | None, ...]:
    cluster = one.cluster or None
    return (cluster, one.node or None) if by.kind == "node" else (cluster,)


def _notes(server: Server, reader: UsageReader) -> Iterator[str]:
    """Yield what the report was read from, and how exact that is. docs/prometheus-reports.md."""
    parts = [
        f"{hours} h from {level.value}"
        for level in Level
        if level is not Level.NOTHING and (hours := reader.hours[level])
    ]
    nothing = reader.hours[Level.NOTHING]
    rest = f"; {nothing} h have no data" if nothing else ""
    yield f"read from {server.url}: {', '.join(parts)}{rest}"
    exact = (
        "exact except for the five minutes at both ends, at a reset of counters, and at the first "
        "samples of a device"
    )
    yield f"{exact}; docs/prometheus-reports.md has measured errors"
    if reader.missed:
        yield (
            f"{reader.missed} evaluations of the recording rules (five minutes each) are missing, "
            "and so are the samples of that time: what counters grew in it is not counted"
        )
    if reader.hours[Level.COUNTERS]:
        yield (
            "the hours from podgpu's counters have no complete records: load the recording rules "
            "(docs/dashboards.md), which makes later reports faster"
        )


def _utc(ms: int) -> str:
    from podgpu.cli.usage.time_span import utc

    return utc(ms * _MS_NS)
