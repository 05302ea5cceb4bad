"""Options of the events sink."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import msgspec

from config.option_markers import AtLeast, AtMost, Doc, LeadsTo
from config.value_types import Duration


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Which XID errors are told on pods, and how often."""

    kubeconfig: Annotated[
        Path | None,
        LeadsTo("kubeconfig"),
        Doc("File with address and credentials; none for those of the pod that podgpu runs in."),
    ] = None
    codes: Annotated[
        tuple[Annotated[int, msgspec.Meta(ge=1, le=65535)], ...],
        Doc("XID codes that an Event is written for; an empty list stands for all."),
    ] = ()
    namespaces: Annotated[
        tuple[str, ...],
        msgspec.Meta(min_length=1),
        Doc("Namespaces on whose pods Events are written, as glob patterns."),
    ] = ("*",)
    repeat: Annotated[
        Duration,
        AtLeast("10s"),
        AtMost("1h"),
        Doc(
            "Errors of one code on one device are told on a pod once in this time; those between "
            "are added up."
        ),
    ] = Duration.parse("10m")
    wait: Annotated[
        Duration,
        AtMost("1m"),
        Doc(
            "How long after an error its Event is written: what the kernel's log says of it comes "
            "a moment later than the driver's word."
        ),
    ] = Duration.parse("6s")
    per_minute: Annotated[
        int,
        msgspec.Meta(ge=1, le=600),
        Doc("Events that are written or changed in a minute at most; others wait."),
    ] = 30

    def problems(self) -> Iterable[tuple[str, str]]:
        """Refuse a pattern that no namespace fits."""
        if not all(pattern.strip() for pattern in self.namespaces):
            yield "namespaces", 'an empty pattern fits no namespace; "*" fits all'

    def exclusive(self) -> Iterable[str]:
        """Two would tell of each error twice."""
        return ("Events on this node's pods",)
