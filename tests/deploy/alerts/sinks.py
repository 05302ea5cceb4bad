"""Alerts about sinks: lost or queued data, receivers that accept nothing, and ledgers."""

from collections.abc import Mapping

from tests.deploy.alerts.case import NODE, Case, own, series

SINK = {"sink": "collector"}


def of(metric: str, **labels: str) -> str:
    return series(f"podgpu_sink_{metric}", **SINK, **labels)


FULL, TOO_OLD = of("dropped_total", reason="queue_full"), of("dropped_total", reason="no_space")
UP, OLD = series("up"), {series("process_start_time_seconds"): "-99999x99"}
PARTIAL = of("rejected_total", reason="partial")
LEDGER = {"sink": "usage"}
COMMITS = series("podgpu_sink_errors_total", **LEDGER, operation="commit", reason="no_space")
ROWS = series("podgpu_sink_archive_pending_rows", **LEDGER)
SUCCESS = series("podgpu_sink_archive_written_timestamp_seconds", **LEDGER)
NO_LOGS = of("rejected_total", reason="no_logs")

SINKS: Mapping[str, tuple[Case, ...]] = {
    "PodgpuSinkDown": (
        Case(
            "down",
            {of("up"): "1x9 0x20 1x9"},
            16,
            [own(**SINK)],
            f"Sink collector of podgpu on {NODE} is down",
            "The sink accepts no readings and is retried.",
            resolved=32,
        ),
        Case("for less than five minutes", {of("up"): "1x9 0x20"}, 14),
        Case("up", {of("up"): "1x30"}, 16),
    ),
    "PodgpuSinkDropping": (
        Case(
            "for a reason that had no series before",
            {FULL: "0x40", TOO_OLD: "_x20 120x20"},
            22,
            [own(**SINK)],
            f"Sink collector of podgpu on {NODE} loses data",
            "120 readings or points were dropped within 15 minutes, and are lost.",
            resolved=37,
        ),
        Case("more losses than before", {FULL: "7x20 8x20"}, 22, [own(**SINK)]),
        Case("a quarter of an hour ago", {FULL: "7x20 8x40"}, 37),
        Case("nothing", {FULL: "7x40"}, 22),
        Case("podgpu restarts, and the counter restarts at 0", {FULL: "7x20 0x20"}, 22),
        Case("losses before the first scrape", {FULL: "_x20 7x20"}, 22, [own(**SINK)]),
        Case(
            "losses before the first scrape of a podgpu that has restarted",
            {FULL: "9000x20 100x20"},
            22,
            [own(**SINK)],
        ),
        Case(
            "losses before the first scrape after a restart, and continuously since",
            {FULL: "9000x20 0+100x20"},
            32,
            [own(**SINK)],
        ),
        Case(
            "losses before a pause of Prometheus", {FULL: "_x20 7x20", UP: "_x20 1x20", **OLD}, 22
        ),
        Case(
            "losses before a pause of Prometheus, and others since",
            {FULL: "_x20 7x19 8x20", UP: "_x20 1x40", **OLD},
            42,
            [own(**SINK)],
        ),
        Case(
            "losses of a podgpu that started during a pause of Prometheus",
            {
                FULL: "_x20 7x20",
                UP: "_x20 1x20",
                series("process_start_time_seconds"): "_x20 1000x20",
            },
            22,
            [own(**SINK)],
        ),
    ),
    "PodgpuSinkRejected": (
        Case(
            "a part of a message",
            {PARTIAL: "0x20 40x20"},
            22,
            [own(**SINK)],
            f"The receiver of sink collector of podgpu on {NODE} refuses data",
            "40 points were permanently refused within 15 minutes, and are not sent again.",
            resolved=38,
        ),
        Case("from the first message on", {PARTIAL: "_x20 40x20"}, 22, [own(**SINK)]),
        Case("of a podgpu that has restarted", {PARTIAL: "900x20 40x20"}, 22, [own(**SINK)]),
        Case("before a pause of Prometheus", {PARTIAL: "_x20 40x20", UP: "_x20 1x20", **OLD}, 22),
        Case("nothing", {PARTIAL: "40x40"}, 22),
        Case("log records for which the receiver has no logs service", {NO_LOGS: "_x20 40x20"}, 22),
    ),
    "PodgpuSinkNotDelivering": (
        Case(
            "the receiver does not respond",
            {of("delivering"): "1x9 0x20 1x9"},
            16,
            [own(**SINK)],
            f"The receiver of sink collector of podgpu on {NODE} accepts nothing",
            "Data waits in the sink's queue until it is full; then the oldest is dropped.",
            resolved=32,
        ),
        Case("for less than five minutes", {of("delivering"): "1x9 0x20"}, 14),
        Case("nothing was sent yet", {of("up"): "1x30"}, 16),
    ),
    "PodgpuSinkQueueFilling": (
        Case(
            "its oldest data is 21 minutes old",
            {of("oldest_age_seconds"): "0+60x25 0x9"},
            21,
            [own(**SINK)],
            f"The queue of sink collector of podgpu on {NODE} fills up",
            "Its oldest data is 21m 0s old. When the queue is full, the oldest data is dropped.",
            resolved=27,
        ),
        Case("20 minutes old", {of("oldest_age_seconds"): "0+60x40"}, 20),
        Case("caught up", {of("oldest_age_seconds"): "0+60x20 0x20"}, 25),
        Case("a sink without a queue", {of("up"): "1x40"}, 25),
    ),
    "PodgpuSinkQueueUnwritable": (
        Case(
            "the disk is full",
            {of("queue_writable"): "1x9 0x20 1x9"},
            16,
            [own(**SINK)],
            f"The disk of sink collector's queue of podgpu on {NODE} accepts nothing",
            "Data is queued in 8 MiB of memory instead, and is lost if podgpu stops.",
            resolved=32,
        ),
        Case("for less than five minutes", {of("queue_writable"): "1x9 0x20"}, 14),
        Case("the disk is writable", {of("queue_writable"): "1x30"}, 16),
    ),
    "PodgpuLedgerNotWritten": (
        Case(
            "the disk is full from minute 5 to 45",
            {COMMITS: "_x5 1+1x40 41x40"},
            26,
            [own(**LEDGER)],
            f"Ledger usage of podgpu on {NODE} cannot be written",
            "Commits have failed repeatedly, 22 since podgpu started. Nothing is lost for some "
            "weeks while podgpu runs: the next successful commit contains the missing usage. A "
            "stop of podgpu loses it.",
            resolved=57,
        ),
        Case(
            "for another reason than before",
            {
                COMMITS: "5x60",
                COMMITS.replace("no_space", "read_only"): "_x5 1+1x60",
            },
            30,
            [own(**LEDGER)],
        ),
        Case("for less than 20 minutes", {COMMITS: "_x5 1+1x40"}, 24),
        Case("one commit", {COMMITS: "_x5 1x60"}, 30),
        Case("another commit an hour later", {COMMITS: "_x5 1x60 2x30"}, 80),
        Case("podgpu restarts, and can write", {COMMITS: "9x20 0x30"}, 35),
        Case(
            "errors of another kind",
            {COMMITS.replace("commit", "read"): "_x5 1+1x60"},
            30,
        ),
    ),
    "PodgpuArchiveNotWritten": (
        Case(
            "no success for six hours, and rows wait",
            {ROWS: "0x59 30x440 0x60", SUCCESS: "0x500 29940x60"},
            400,
            [own(**LEDGER)],
            f"Ledger usage of podgpu on {NODE} is not written to its archive",
            "Closed hours wait in the ledger, and no write has succeeded for 6h 40m 0s. Nothing is "
            "lost until the ledger reaches max_size, or the node is lost.",
            resolved=505,
        ),
        Case("for less than half an hour", {ROWS: "30x500", SUCCESS: "0x500"}, 388),
        Case("nothing waits", {ROWS: "0x500", SUCCESS: "0x500"}, 450),
        Case("a success every hour", {ROWS: "30x500", SUCCESS: "0+60x500"}, 450),
        Case(
            "it is written again",
            {ROWS: "30x420 0x100", SUCCESS: "0x420 25200x100"},
            410,
            [own(**LEDGER)],
            resolved=430,
        ),
    ),
}
