"""Options of the source `podresources`."""

from pathlib import Path
from typing import Annotated

import msgspec

from config.option_markers import AtLeast, Doc
from config.value_types import Duration
from pipeline.allocations.gpu_resources import DEFAULT_DRIVERS, DEFAULT_RESOURCES


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The sockets, the interval, and which resources are GPUs."""

    sockets: Annotated[
        tuple[Path, ...],
        msgspec.Meta(min_length=1),
        Doc("The sockets. Mount their folders, not the sockets: the kubelet replaces the sockets."),
    ] = (Path("/var/lib/kubelet/pod-resources/kubelet.sock"),)
    interval: Annotated[
        Duration,
        AtLeast("1s"),
        Doc("How often podgpu queries the kubelet while nothing hints at a change."),
    ] = Duration.parse("10s")
    resources: Annotated[
        tuple[str, ...],
        msgspec.Meta(min_length=1),
        Doc(
            "Extended resources that can be GPUs, as glob patterns; all others are ignored. A "
            "pattern after ! excludes resources; exclusions alone apply to the default."
        ),
    ] = DEFAULT_RESOURCES
    drivers: Annotated[
        tuple[str, ...],
        msgspec.Meta(min_length=1),
        Doc(
            "DRA drivers whose devices are GPUs, as glob patterns; all others are ignored. A "
            "pattern after ! excludes drivers."
        ),
    ] = DEFAULT_DRIVERS
    max_age: Annotated[
        Duration,
        AtLeast("1s"),
        Doc("How long the last response stays in use while the kubelet does not respond."),
    ] = Duration.parse("5m")
    timeout: Annotated[
        Duration,
        AtLeast("100ms"),
        Doc("Time limit of a request to the kubelet."),
    ] = Duration.parse("10s")
