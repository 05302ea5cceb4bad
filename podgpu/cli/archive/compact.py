"""Run `podgpu archive compact`."""

import argparse
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta

from pipeline.base.clock import SystemClock
from podgpu.cli.archive.compact_options import UNFINISHED
from podgpu.cli.archive.extra import check_extra
from podgpu.cli.terminal_text import EXIT_UNWRITTEN, complain, lines, put


def compact(arguments: argparse.Namespace) -> int:
    """`podgpu archive compact`: merge the objects of closed days; return the exit status.

    Raises:
        TransientError: the archive or the disk of temporary files fails.
        PermanentError: the location is invalid, the archive refuses a request, or the packages
            of `podgpu[archive]` are not installed.
    """
    check_extra()
    from pipeline.archive.compaction import CompactedDay
    from pipeline.archive.compaction import compact as compact_days
    from pipeline.archive.database import open_database
    from pipeline.archive.object_merge import ParquetMerge
    from pipeline.archive.object_store import ObjectStore
    from pipeline.archive.work_folder import work_folder

    written = True

    def show(day: CompactedDay) -> None:
        nonlocal written
        what = f"merged {day.merged} objects" if day.merged else "nothing to merge"
        text = (
            f"{day.cluster} {day.day}: {what}, deleted {day.deleted}; "
            f"{day.rows} rows are in {day.key}"
        )
        written = put(lines(text), "what was compacted") and written

    store = ObjectStore(arguments.location)
    now_ns = SystemClock().now().wall_ns
    with work_folder("podgpu-compact-", now_ns / 1e9) as folder:
        spilled = folder / "spilled"
        spilled.mkdir()
        with open_database(spilled, memory_mb=arguments.memory >> 20) as database:
            summary = compact_days(
                store,
                ParquetMerge(database),
                folder,
                closed=closed_days(now_ns, arguments.older_than),
                clusters=arguments.cluster,
                done=show,
            )
    for (cluster, day), reason in sorted(summary.refused.items()):
        complain(lines(f"podgpu: {cluster} {day} is not compacted: {reason}"))
    if summary.unfinished:
        complain(
            f"podgpu: another compaction changed {summary.unfinished} days at the same time; the "
            "next compaction continues"
        )
    if summary.foreign:
        complain(
            lines(
                f"podgpu: {len(summary.foreign)} objects are not podgpu's and are ignored, such as "
                f"{summary.foreign[0]}"
            )
        )
    if not (summary.days or summary.refused or summary.unfinished):
        written = put("nothing to compact", "that nothing was compacted")
    if summary.refused or summary.unfinished:
        return UNFINISHED
    return 0 if written else EXIT_UNWRITTEN


def closed_days(now_ns: int, older_than: float) -> Callable[[date], bool]:
    """Return whether a UTC day ended at least `older_than` seconds ago."""
    limit = datetime.fromtimestamp(now_ns / 1e9, UTC) - timedelta(seconds=older_than)

    def closed(day: date) -> bool:
        return datetime.combine(day, time(), UTC) + timedelta(days=1) <= limit

    return closed
