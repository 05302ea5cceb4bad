"""The checks of the otlp sink for `podgpu doctor`."""

from typing import Final

from pipeline.component.check import FAILS, Check, checks_by_id

CHECKS: Final = checks_by_id(
    Check(
        "otlp.receiver",
        "the receiver, by a request without points",
        "it cannot be reached, or it refuses podgpu",
        "check that the collector runs and has an OTLP receiver at that address; check headers, "
        "token and certificates",
        FAILS,
        skips=False,
    ),
)
