"""Check `queue.rate`: whether a sink can send its queue after an outage within `max_rate`."""

import re
from typing import Final

from config.schema import Config
from config.value_types import ByteSize
from pipeline.base.safe_text import line
from pipeline.component.findings import Finding
from pipeline.delivery.production_rate import format_bytes
from pipeline.diagnostics.port_owner import PortOwner
from podgpu.doctor.checks import CHECKS
from podgpu.doctor.delivery_queues import queues

_RATE: Final = re.compile(
    rb'^podgpu_sink_produced_bytes_per_second\{sink="([^"\n]*)"\} (\S+)$', re.MULTILINE
)
_FIX: Final = (
    "raise queue.max_rate (0B for no limit), or let podgpu produce less: longer intervals of the "
    "sources, a shorter list of metrics"
)


def check_rates(subject: str, owner: PortOwner, config: Config) -> list[Finding]:
    """Run the check `queue.rate` for each sink with a queue.

    Args:
        subject: the address where podgpu responds.
        owner: the podgpu that responds there.
        config: has the `queue.max_rate` of the sinks.
    """
    rates = {
        name.decode("utf-8", "replace"): float(rate) for name, rate in _RATE.findall(owner.metrics)
    }
    return [
        _check_rate(f"{subject}/metrics", line(name), options.max_rate, rates.get(name))
        for name, options in queues(config).items()
    ]


def _check_rate(subject: str, name: str, most: ByteSize, rate: float | None) -> Finding:
    check = CHECKS["queue.rate"]
    if not most:
        return check.ok(subject, f"sink {name} has no queue.max_rate")
    if rate is None:
        return check.skip(
            subject,
            f"the data rate of sink {name} is unknown: it is measured after the first minute, or a "
            "password is required",
        )
    rates = f"sink {name} produces {format_bytes(round(rate))}/s, and queue.max_rate is {most}/s"
    if rate * 2 <= most:
        return check.ok(subject, rates)
    effect = "sending the queue takes longer than the outage lasted"
    if rate >= most:
        effect = "after an outage the queue never shrinks, and overflows"
    return check.warning(subject, f"{rates}: {effect}", _FIX)
