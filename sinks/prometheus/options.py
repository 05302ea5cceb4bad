"""Options of the sink `prometheus`."""

from collections.abc import Iterable
from typing import Annotated, Final

import msgspec

from config.option_markers import Doc
from config.value_types import ListenAddress
from pipeline.exposition.options import PageOptions

OWN_PATHS: Final = frozenset(
    {"/", "/health", "/healthz", "/readyz", "/status", "/topology", "/topology/best"}
)


class Options(PageOptions, frozen=True, kw_only=True):
    """Options of the sink `prometheus`."""

    listen: Annotated[
        ListenAddress,
        Doc(
            "Address to listen on. Components with the same address share one listener. `systemd` "
            "is the socket of a systemd socket unit."
        ),
    ] = ListenAddress("", 9400)
    path: Annotated[str, msgspec.Meta(pattern=r"^/[^?#\s]+$"), Doc("URL path of the metrics.")] = (
        "/metrics"
    )

    def exclusive(self) -> Iterable[str]:
        """Return the resources that only one component may use: a path on a listener."""
        return (f"{self.path} on {self.listen}",)

    def problems(self) -> Iterable[tuple[str, str]]:
        """Report a path that every listener of podgpu already serves."""
        if self.path in OWN_PATHS:
            yield "path", f"{self.path} is used by podgpu itself: set another, such as /metrics"
