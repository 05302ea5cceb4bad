"""Options of the podresources source."""

from pathlib import Path
from typing import Annotated

import msgspec

from config.option_markers import AtLeast, Doc
from config.value_types import Duration


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Which sockets are asked, how often, and what of the answers counts."""

    sockets: Annotated[
        tuple[Path, ...],
        msgspec.Meta(min_length=1),
        Doc("Sockets to ask. Mount their folders, not the sockets: the kubelet makes new ones."),
    ] = (Path("/var/lib/kubelet/pod-resources/kubelet.sock"),)
    interval: Annotated[
        Duration,
        AtLeast("1s"),
        Doc("How often the kubelet is asked while nothing hints at a change."),
    ] = Duration.parse("10s")
    resources: Annotated[
        tuple[str, ...],
        msgspec.Meta(min_length=1),
        Doc("Extended resources that are GPUs, as glob patterns; all others are left out."),
    ] = ("nvidia.com/*", "*/*gpu*")
    drivers: Annotated[
        tuple[str, ...],
        msgspec.Meta(min_length=1),
        Doc("DRA drivers whose devices are GPUs, as glob patterns; all others are left out."),
    ] = ("*gpu*",)
    max_age: Annotated[
        Duration,
        AtLeast("1s"),
        Doc("How long the last answer stands once the kubelet gives none."),
    ] = Duration.parse("5m")
    timeout: Annotated[
        Duration,
        AtLeast("100ms"),
        Doc("How long the kubelet may take over an answer."),
    ] = Duration.parse("10s")
