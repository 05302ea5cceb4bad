"""Whether what podgpu makes for a queue leaves room to catch up after an outage."""

import re
from typing import Final

from config.schema import Component, Config
from pipeline.base.safe_text import line
from pipeline.component.findings import Finding
from pipeline.delivery.options import QueueOptions
from pipeline.delivery.production_rate import format_bytes
from pipeline.diagnostics.check_table import CHECKS
from pipeline.diagnostics.port_owner import PortOwner

_MADE: Final = re.compile(
    rb'^podgpu_sink_produced_bytes_per_second\{sink="([^"\n]*)"\} (\S+)$', re.MULTILINE
)
_FIX: Final = (
    "raise queue.max_rate (0B for no limit), or let podgpu make less: longer intervals of the "
    "sources, a shorter list of metrics"
)


def check_rates(subject: str, owner: PortOwner, config: Config) -> list[Finding]:
    """Check `queue.rate` for each sink that has a queue.

    Args:
        subject: where podgpu answered.
        owner: what it answered.
        config: the sinks' `queue.max_rate`.
    """
    made = {
        name.decode("utf-8", "replace"): float(rate) for name, rate in _MADE.findall(owner.metrics)
    }
    return [
        _check_rate(f"{subject}/metrics", sink, made.get(sink.name))
        for sink in config.sinks.values()
        if isinstance(getattr(sink.options, "queue", None), QueueOptions)
    ]


def _check_rate(subject: str, sink: Component, made: float | None) -> Finding:
    queue: QueueOptions = sink.options.queue  # type: ignore[attr-defined]
    check, most = CHECKS["queue.rate"], queue.max_rate
    name = line(sink.name)
    if not most:
        return check.ok(subject, f"sink {name} has no queue.max_rate")
    if made is None:
        return check.skip(
            subject, f"what sink {name} makes isn't told: in its first minute, or behind a password"
        )
    told = f"sink {name} makes {format_bytes(round(made))} a second, and queue.max_rate is {most}"
    if made >= most:
        saw = f"{told}: what waits in an outage never gets less, until the queue runs over"
        return check.warning(subject, saw, _FIX)
    if made * 2 > most:
        saw = f"{told}: what waits in an outage takes longer to be sent than the outage took"
        return check.warning(subject, saw, _FIX)
    return check.ok(subject, told)
