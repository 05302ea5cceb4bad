"""Options of the source `nri`."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from config.option_markers import AtLeast, Doc
from config.value_types import Duration


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the source `nri`."""

    socket: Annotated[
        Path,
        Doc("The runtime's socket. Mount its folder, because the runtime recreates the socket."),
    ] = Path("/var/run/nri/nri.sock")
    index: Annotated[
        str,
        msgspec.Meta(pattern="^[0-9]{2}$", max_length=2),
        Doc("Two digits. Plugins with a lower index run first, and podgpu sees their changes."),
    ] = "90"
    name: Annotated[
        str,
        msgspec.Meta(pattern=r"^[A-Za-z0-9_.+-]{1,63}$"),
        Doc("The plugin's name in the runtime's log."),
    ] = "podgpu"
    inject: Annotated[
        Literal["off", "koordinator"],
        Doc("Which scheduler's annotation sets NVIDIA_VISIBLE_DEVICES in a pod's new containers."),
    ] = "off"
    max_age: Annotated[
        Duration,
        AtLeast("1m"),
        Doc("How long the runtime's last report stays valid after the connection is lost."),
    ] = Duration.parse("5m")
