"""What can be set for the prometheus sink."""

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
    """Options of the prometheus sink."""

    listen: Annotated[
        ListenAddress,
        Doc("Where the page is served. Components with the same address share one listener."),
    ] = ListenAddress("", 9400)
    path: Annotated[
        str, msgspec.Meta(pattern=r"^/[^?#\s]+$"), Doc("The page's path on the listener.")
    ] = "/metrics"

    def exclusive(self) -> Iterable[str]:
        """A path on a listener has one page."""
        return (f"{self.path} on {self.listen}",)

    def problems(self) -> Iterable[tuple[str, str]]:
        """Paths that every listener serves by itself can't be taken."""
        if self.path in OWN_PATHS:
            yield "path", f"{self.path} is podgpu's own: take another, such as /metrics"
