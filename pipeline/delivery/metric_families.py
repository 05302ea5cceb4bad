"""podgpu's own metrics of sinks that send to a receiver."""

from typing import Final

from pipeline.base.telemetry import Family

FAMILIES: Final = (
    Family(
        "podgpu_sink_produced_total", "Points that a sink with a queue has produced from snapshots."
    ),
    Family(
        "podgpu_sink_produced_bytes_per_second",
        "Bytes per second that a sink with a queue produced in the last minute; no sample in the "
        "first minute.",
    ),
    Family(
        "podgpu_sink_recovered_total",
        "Points of an earlier run that waited in the sink's queue when it was opened.",
    ),
    Family(
        "podgpu_sink_rejected_total",
        "Points that the receiver refused permanently, by reason.",
        timestamped=True,
    ),
    Family("podgpu_sink_queued", "Points that wait in the sink's queue."),
    Family("podgpu_sink_queue_bytes", "Size of the sink's queue."),
    Family(
        "podgpu_sink_queue_writable",
        "1 while the queue's disk can be written, 0 while data is kept in memory instead.",
    ),
    Family(
        "podgpu_sink_oldest_age_seconds",
        "Age of the oldest data in the sink's queue; 0 while it is empty.",
    ),
    Family(
        "podgpu_sink_delivering",
        "1 while the receiver accepts what the sink sends, 0 while it does not; no sample before "
        "the first message.",
    ),
    Family("podgpu_sink_retries_total", "Messages that had to be sent again, by reason."),
)
