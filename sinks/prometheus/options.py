"""What can be set for the prometheus sink."""

from typing import Annotated

import msgspec

from config.markers import Doc
from config.types import ListenAddress


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the prometheus sink."""

    listen: Annotated[
        ListenAddress,
        Doc("Where the page is served. Components with the same address share one listener."),
    ] = ListenAddress("", 9400)
    path: Annotated[
        str, msgspec.Meta(pattern=r"^/[^?#\s]+$"), Doc("The page's path on the listener.")
    ] = "/metrics"
