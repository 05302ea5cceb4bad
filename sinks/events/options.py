"""Options of the sink `events`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import msgspec

from config.option_markers import AtLeast, AtMost, Doc, LeadsTo
from config.value_types import Duration


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the sink `events`: which XID errors get Events, and how often."""

    kubeconfig: Annotated[
        Path | None,
        LeadsTo("kubeconfig"),
        Doc("File with address and credentials of the API server; default: those of the pod."),
    ] = None
    codes: Annotated[
        tuple[Annotated[int, msgspec.Meta(ge=1, le=65535)], ...],
        Doc("XID codes that get Events; an empty list means all."),
    ] = ()
    namespaces: Annotated[
        tuple[str, ...],
        msgspec.Meta(min_length=1),
        Doc("Namespaces whose pods get Events, as glob patterns."),
    ] = ("*",)
    repeat: Annotated[
        Duration,
        AtLeast("10s"),
        AtMost("1h"),
        Doc(
            "At most one Event per pod, device and code in this time; further errors are added to "
            "its count."
        ),
    ] = Duration.parse("10m")
    wait: Annotated[
        Duration,
        AtMost("1m"),
        Doc(
            "Delay between an error and its Event; the kernel log reports details a moment later "
            "than the driver."
        ),
    ] = Duration.parse("6s")
    per_minute: Annotated[
        int,
        msgspec.Meta(ge=1, le=600),
        Doc("Maximum number of Events written or changed per minute; others wait."),
    ] = 30

    def problems(self) -> Iterable[tuple[str, str]]:
        """Report an empty pattern."""
        if not all(pattern.strip() for pattern in self.namespaces):
            yield "namespaces", 'an empty pattern matches no namespace; "*" matches all'

    def exclusive(self) -> Iterable[str]:
        """Return the resources that only one sink may use: two would report each error twice."""
        return ("Events on this node's pods",)
