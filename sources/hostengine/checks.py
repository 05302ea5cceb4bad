"""The checks of the hostengine source for `podgpu doctor`."""

from typing import Final

from pipeline.component.check import FAILS, Check, checks_by_id

CHECKS: Final = checks_by_id(
    Check(
        "hostengine.library",
        "DCGM's client library",
        "it is missing, or it is another library",
        "add it to the image or mount it, and set `library`",
        FAILS,
    ),
    Check(
        "hostengine.address",
        "the address of the host engine: podgpu doctor connects and disconnects",
        "nothing listens there",
        "start nv-hostengine on the node, or set `address`",
        FAILS,
        skips=False,
    ),
)
