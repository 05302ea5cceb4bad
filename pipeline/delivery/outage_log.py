"""Logs when the receiver stops to accept data, and when it accepts data again."""

from pipeline.component.contracts import SinkContext
from pipeline.delivery.contract import Retry
from pipeline.delivery.log_throttle import LogThrottle
from pipeline.delivery.metrics import DeliveryMetrics


class Outage:
    """The time from the first message that has to be sent again until the receiver responds.

    Args:
        ctx: logger, metrics and clock of the sink.
        reporter: reports the same in podgpu's own metrics.
        throttle: limits the warnings of repeated outages.
    """

    def __init__(self, ctx: SinkContext, reporter: DeliveryMetrics, throttle: LogThrottle) -> None:
        self._ctx = ctx
        self._reporter = reporter
        self._throttle = throttle
        self._since_ns: int | None = None
        self._reason = ""
        self._logged = False

    def report_failure(self, retry: Retry) -> None:
        """Report a failure; log it if the outage starts or its reason changes."""
        self._reporter.set_delivering(False)
        self._ctx.meter.set_problem(retry.message, self._ctx.clock.now())
        if self._since_ns is None:
            self._since_ns, self._reason, self._logged = self._ctx.clock.now().mono_ns, "", False
        text = "%s; data is queued and will be sent again"
        if retry.reason != self._reason:
            self._reason = retry.reason
            self._logged |= self._throttle.warn(f"again: {retry.reason}", text, retry.message)
        else:
            self._ctx.log.debug(text, retry.message)

    def report_recovery(self) -> None:
        """Log that the receiver responds again, and how many points are queued."""
        if self._since_ns is None:
            return
        seconds = (self._ctx.clock.now().mono_ns - self._since_ns) / 1e9
        self._since_ns = None
        if self._logged:
            self._ctx.log.info(
                "the receiver responds again after %.0f s; %d points are queued",
                seconds,
                self._reporter.queued,
            )
