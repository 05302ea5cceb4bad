"""Options of the pods sink."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import msgspec

from config.option_markers import Doc, LeadsTo


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The API server, and the resources for which annotations are written."""

    kubeconfig: Annotated[
        Path | None,
        LeadsTo("kubeconfig"),
        Doc("File with address and credentials; if not set, the pod's service account is used."),
    ] = None
    resources: Annotated[
        tuple[str, ...],
        msgspec.Meta(min_length=1),
        Doc("Extended resources for which uuids are written, as glob patterns."),
    ] = ("*",)

    def problems(self) -> Iterable[tuple[str, str]]:
        """Report an empty pattern, which matches no name."""
        if not all(pattern.strip() for pattern in self.resources):
            yield (
                "resources",
                'an empty pattern matches no resource; "*" matches all, nvidia.com/gpu only that',
            )

    def exclusive(self) -> Iterable[str]:
        """Return the resource that only one sink may use: two could contradict each other."""
        return ("the annotations of this node's pods",)
