"""Tells people when nothing is taken any more, and when it is again."""

from pipeline.component.contracts import SinkContext
from pipeline.delivery.contract import Retry
from pipeline.delivery.log_throttle import LogThrottle
from pipeline.delivery.metrics import DeliveryMetrics


class Outage:
    """The time from the first message that has to be sent again until one is taken.

    Args:
        ctx: whose log, and whose clock.
        reporter: tells the same in podgpu's own metrics.
        seldom: keeps the log short when outages come again and again.
    """

    def __init__(self, ctx: SinkContext, reporter: DeliveryMetrics, seldom: LogThrottle) -> None:
        self._ctx = ctx
        self._reporter = reporter
        self._throttle = seldom
        self._since_ns: int | None = None
        self._reason = ""
        self._logged = False

    def report_failure(self, retry: Retry) -> None:
        """Tell that it begins, or that its reason is another."""
        self._reporter.set_delivering(False)
        self._ctx.meter.set_problem(retry.message, self._ctx.clock.now())
        if self._since_ns is None:
            self._since_ns, self._reason, self._logged = self._ctx.clock.now().mono_ns, "", False
        text = "%s; data waits and is sent again"
        if retry.reason != self._reason:
            self._reason = retry.reason
            self._logged |= self._throttle.warn(f"again: {retry.reason}", text, retry.message)
        else:
            self._ctx.log.debug(text, retry.message)

    def report_recovery(self) -> None:
        """Tell that the receiver answers again, and what had to wait."""
        if self._since_ns is None:
            return
        seconds = (self._ctx.clock.now().mono_ns - self._since_ns) / 1e9
        self._since_ns = None
        if self._logged:
            self._ctx.log.info(
                "the receiver answers again after %.0f s; %d points have waited",
                seconds,
                self._reporter.queued,
            )
