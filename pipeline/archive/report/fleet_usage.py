"""The usage of several nodes in a span of time, from archives and ledger files."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from pipeline.archive.database import Database
from pipeline.archive.report.ended_items import find_gaps, gap_counts
from pipeline.archive.report.group_query import grouped_usage, make_parts
from pipeline.archive.report.row_sources import RowSources, open_rows
from pipeline.archive.report.usage_sums import Detail, sum_usage
from pipeline.base.errors import PermanentError
from pipeline.ledger.reports import GroupBy, GroupedUsage, Report, Tariff, report_of_groups
from pipeline.ledger.schema import HOUR_NS
from pipeline.model.ledger_usage import DeviceTotal, UsageWindow

_TOTALS: Final = """
SELECT
    devices.id, devices.device, concat_ws(' ', nullif(model, ''), nullif(profile, '')),
    sum(accounted_ns), sum(gap_ns), sum(busy_ns), sum(energy_mj), sum(unknown_ns),
    coalesce(gpu, ''), gpu_index, coalesce(profile, ''), node, cluster,
    min(first_hour), max(last_hour), max(sample_data)
FROM device_sums JOIN devices ON devices.id = device_sums.device
GROUP BY ALL ORDER BY cluster, node, gpu_index NULLS LAST, devices.device
"""


@dataclass(frozen=True, slots=True)
class FleetUsage:
    """The usage of several nodes in a span of time.

    Attributes:
        sources: the rows.
        window: the time span and the devices; without usage rows and gaps.
        device_numbers: number of each device in the database, in the order of the window.
    """

    sources: RowSources
    window: UsageWindow
    device_numbers: tuple[int, ...]

    @property
    def database(self) -> Database:
        """The database with the sums."""
        return self.sources.database

    def groups(self, by: GroupBy) -> list[GroupedUsage]:
        """Return the usage by group and price class.

        Args:
            by: how to group it.

        Raises:
            PermanentError: there are too many groups, or the memory limit is too low.
        """
        numbers = self.device_numbers
        return grouped_usage(self.database, _placed(by), self.window.totals, numbers)

    def report(self, by: GroupBy, prices: Tariff, groups: Iterable[GroupedUsage]) -> Report:
        """Return the report on the usage.

        Args:
            by: how it was grouped.
            prices: the prices, with the changes that `open_usage` got.
            groups: the usage by group.
        """
        return report_of_groups(self.window, _placed(by), prices, groups)


def _placed(by: GroupBy) -> GroupBy:
    return replace(by, several_nodes=True)


@contextmanager
def open_usage(
    locations: Sequence[str],
    span: tuple[int, int],
    *,
    clusters: Collection[str] = (),
    device: str = "",
    changes: Sequence[int] = (),
    by: GroupBy | None = None,
    now_ns: int = 0,
) -> Iterator[FleetUsage]:
    """Read and sum the usage in a span of time; the result is valid in the context.

    Args:
        locations: archives and paths of ledger files.
        span: start and end, in nanoseconds of Unix time. All hours that overlap it are read.
        clusters: the clusters to read; empty for all.
        device: first characters of the UUID of a GPU or a MIG instance; empty for all.
        changes: moments at which prices change, in nanoseconds of Unix time: full hours, sorted.
        by: the only grouping of the result; None for any grouping, which needs more memory.
        now_ns: the present time, in nanoseconds of Unix time: see `open_rows`.

    Raises:
        TransientError: a location cannot be read now.
        PermanentError: a location or an object is refused, the memory limit is too low, or several
            GPUs have the UUID.
    """
    start_ns, end_ns = span
    with open_rows(locations, start_ns, clusters=clusters, now_ns=now_ns) as sources:
        detail = _detail(by)
        by_price = detail == "namespace" and not device
        sum_usage(sources, start_ns, end_ns, changes, detail, by_price=by_price)
        first_ns, beyond_ns = start_ns // HOUR_NS * HOUR_NS, -(-end_ns // HOUR_NS) * HOUR_NS
        find_gaps(sources, first_ns, beyond_ns)
        make_parts(sources.database)
        rows = sources.database.execute(_TOTALS)
        if device and rows:
            rows = _chosen(rows, device)
        totals = tuple(DeviceTotal(*row[1:13]) for row in rows)
        start = max([first_ns, *([min(row[13] for row in rows) * HOUR_NS] if rows else [])])
        end = min([beyond_ns, *([(max(row[14] for row in rows) + 1) * HOUR_NS] if rows else [])])
        made_up = max((row[15] or "" for row in rows), default="")
        numbers = tuple(row[0] for row in rows)
        gaps = gap_counts(sources.database, list(numbers))
        window = UsageWindow("", start, max(start, end), (), totals, (), made_up, gaps)
        yield FleetUsage(sources, window, numbers)


def _detail(by: GroupBy | None) -> Detail:
    if by is not None and by.is_of_devices:
        return "device"
    match by.kind if by is not None else None:
        case "namespace":
            return "namespace"
        case "pod":
            return "pod"
        case _:
            return "facts"


def _chosen(rows: Sequence[tuple[object, ...]], device: str) -> list[tuple[object, ...]]:
    """Return the devices of one GPU.

    Raises:
        PermanentError: no GPU, or several, have a UUID that begins so.
    """
    lower = device.lower()
    starts = lower, f"gpu-{lower}", f"mig-{lower}"
    found = [row for row in rows if str(row[1]).lower().startswith(starts)]
    uuids = {row[1] for row in found}
    found = [row for row in rows if row[1] in uuids or row[8] in uuids]
    gpus = {row[8] or row[1] for row in found}
    if len(gpus) != 1:
        what = f"{len(gpus)} GPUs have" if gpus else "no device has"
        raise PermanentError(
            f"--device {device}: {what} usage in this time and a UUID that begins so; with --from, "
            "give the first characters of the UUID of one GPU, which --by device --format csv shows"
        )
    return found
