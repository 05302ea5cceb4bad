"""Options of the pods sink."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import msgspec

from config.option_markers import Doc, LeadsTo


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Which API server is asked, and for which resources annotations are written."""

    kubeconfig: Annotated[
        Path | None,
        LeadsTo("kubeconfig"),
        Doc("File with address and credentials; none for those of the pod that podgpu runs in."),
    ] = None
    resources: Annotated[
        tuple[str, ...],
        msgspec.Meta(min_length=1),
        Doc("Extended resources whose uuids are written, as glob patterns."),
    ] = ("*",)

    def problems(self) -> Iterable[tuple[str, str]]:
        """Refuse a pattern that no name fits."""
        if not all(pattern.strip() for pattern in self.resources):
            yield (
                "resources",
                'an empty pattern fits no resource; "*" fits all, nvidia.com/gpu this one',
            )

    def exclusive(self) -> Iterable[str]:
        """Two would ask for each pod twice, and could come to write different things."""
        return ("the annotations of this node's pods",)
