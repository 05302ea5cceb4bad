"""The usage in a span of time from a Prometheus server, grouped for a report."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from pipeline.base.errors import PermanentError, TransientError
from pipeline.ledger.reports import GroupBy, GroupedUsage, Tariff, choose_device
from pipeline.ledger.reports.groups import group_keys
from pipeline.ledger.reports.window_groups import grouped
from pipeline.model.ledger_usage import UsageRow, UsageWindow
from podgpu.cli.usage.prometheus.coverage import HOUR_MS, Level
from podgpu.cli.usage.prometheus.http_api import PrometheusApi, TooLargeError
from podgpu.cli.usage.prometheus.label_key import label_names
from podgpu.cli.usage.prometheus.reader import UsageReader, Wanted
from podgpu.cli.usage.prometheus.server_options import Server
from podgpu.cli.usage.prometheus.usage_rows import combined
from podgpu.cli.usage.time_span import utc
from podgpu.cli.usage.units import span as duration

_MS_NS: Final = 10**6
_LONGEST_NS: Final = 20 * 366 * 24 * 3600 * 10**9
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
        end_ns: end; what is after the present time is left out.
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
    if span.end_ns - span.start_ns > _LONGEST_NS and not span.start_ns:
        raise PermanentError("--since all: a server has no first time; give a date, such as 90d")
    start_ms = span.start_ns // _MS_NS // HOUR_MS * HOUR_MS
    end_ms = -(-min(span.end_ns, span.now_ns) // _MS_NS // HOUR_MS) * HOUR_MS
    now_ms = span.now_ns // _MS_NS
    label = (span.by.label, label_names(span.by.label)) if span.by.kind == "label" else None
    wanted = Wanted(span.cluster_label, span.by.kind in _OF_CONTAINERS, label)
    edges = [
        start_ms,
        *(at for each in prices.changes if start_ms < (at := each // _MS_NS) < end_ms),
        end_ms,
    ]
    rows, totals, lost_ns = [], [], 0
    async with PrometheusApi(server) as api:
        reader = UsageReader(api, wanted, now_ms)
        await reader.prepare(end_ms)
        for start, end in pairwise(edges):
            sums = await reader.read(start, end)
            rows += sums.rows(start * _MS_NS if prices.changes else 0)
            lost_ns += sums.lost_ns
            totals.append(sums.totals((min(end, now_ms) - start) * _MS_NS))
    if not rows:
        when = f"from {utc(start_ms * _MS_NS)} to {utc(end_ms * _MS_NS)} UTC"
        raise TransientError(
            f"{server.url}: has no usage of podgpu {when}; "
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
    notes = [*_notes(server, reader, lost_ns), *(f"{server.url}: {text}" for text in api.warnings)]
    return PrometheusUsage(replace(window, usage=()), usage, notes)


def _grouped(window: UsageWindow, by: GroupBy) -> list[GroupedUsage]:
    """Return the usage by group; prices can depend on the cluster. Holdings are unknown."""
    clusters = {one.device: one.cluster for one in window.totals}
    rows: dict[str, list[UsageRow]] = {}
    for row in window.usage:
        rows.setdefault(clusters[row.device], []).append(row)
    is_place = by.kind in ("node", "cluster")
    found: list[GroupedUsage] = []
    for cluster, members in rows.items():
        part = replace(window, usage=tuple(members))
        found += [
            replace(one, price=replace(one.price, cluster=cluster), holdings=None)
            for one in grouped(part, GroupBy("device") if is_place else by)
        ]
    return _by_place(found, window, by) if is_place else found


def _by_place(
    usage: Iterable[GroupedUsage], window: UsageWindow, by: GroupBy
) -> list[GroupedUsage]:
    """Return the usage of devices as that of their nodes or clusters."""
    places: dict[str | None, tuple[str | None, ...]] = {
        one.device: ((one.cluster or None, one.node or None)[: len(by.fields)])
        for one in window.totals
    }
    names = group_keys(by, dict.fromkeys(places.values()), window.totals)
    keys = {key.parts: key for key in names}
    # The first part of a device's key is its uuid.
    return [replace(one, key=keys[places[one.key.parts[0]]]) for one in usage if one.key]


def _notes(server: Server, reader: UsageReader, lost_ns: int) -> Iterator[str]:
    """Yield what the report was read from, and how exact that is. docs/prometheus-reports.md."""
    parts = [
        f"{hours} h from {level.value}"
        for level in Level
        if level is not Level.NOTHING and (hours := reader.hours[level])
    ]
    nothing = reader.hours[Level.NOTHING]
    rest = f"; {nothing} h have no data" if nothing else ""
    yield f"read from {server.url}: {', '.join(parts)}{rest}"
    records = any(reader.hours[level] for level in (Level.DAYS, Level.HOURS, Level.STEPS))
    late = "up to five minutes late" if records else "exactly, to a scrape"
    yield (
        f"the span begins and ends {late}. A reset of counters costs up to five minutes, and what "
        "was counted before the first sample of a device is not included. "
        "docs/prometheus-reports.md has measured errors"
    )
    if lost_ns:
        yield (
            f"{duration(lost_ns)} were held by containers whose last samples the server does not "
            "have: this time is in UNKNOWN"
        )
    if reader.without_rules:
        yield (
            f"no recording rules are evaluated for the cluster {', '.join(reader.without_rules)}: "
            "the report is made from podgpu's counters where the server has them, and elsewhere "
            "this cluster is missing. Load the rules there (docs/dashboards.md)"
        )
    elif reader.missed:
        yield (
            f"{reader.missed} evaluations of the recording rules are missing, and the counters of "
            "these hours too: what was used in these five minutes is not counted"
        )
    if reader.hours[Level.COUNTERS]:
        yield (
            "the hours from podgpu's counters have no complete records. With the recording rules "
            "(docs/dashboards.md), later reports are faster"
        )
