"""Options of the checkpoint source."""

from pathlib import Path
from typing import Annotated

import msgspec

from config.option_markers import AtLeast, Doc
from config.value_types import ByteSize, Duration


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Where the kubelet's checkpoint lies and what of it counts."""

    path: Annotated[
        Path,
        Doc("The file. Mount its folder, not the file: the kubelet puts a new one in its place."),
    ] = Path("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")
    resources: Annotated[
        tuple[str, ...],
        msgspec.Meta(min_length=1),
        Doc("Extended resources that are GPUs, as glob patterns; all others are left out."),
    ] = ("nvidia.com/*", "*/*gpu*")
    max_age: Annotated[
        Duration,
        AtLeast("1s"),
        Doc("How long the last good checkpoint stands once the file is missing or broken."),
    ] = Duration.parse("5m")
    interval: Annotated[
        Duration,
        AtLeast("1s"),
        Doc("How often the claims are confirmed and the file looked at; changes are seen at once."),
    ] = Duration.parse("10s")
    max_size: Annotated[
        ByteSize,
        AtLeast("1KiB"),
        Doc("A larger file is not read."),
    ] = ByteSize.parse("32MiB")
