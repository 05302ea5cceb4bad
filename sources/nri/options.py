"""Options of the nri source."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from config.option_markers import AtLeast, Doc
from config.value_types import Duration


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Where the runtime listens, and as what podgpu registers there."""

    socket: Annotated[
        Path,
        Doc("The runtime's socket. Mount its folder, not the socket: the runtime makes new ones."),
    ] = Path("/var/run/nri/nri.sock")
    index: Annotated[
        str,
        msgspec.Meta(pattern="^[0-9]{2}$", max_length=2),
        Doc("Two digits; plugins with a lower index are called first, and podgpu sees their work."),
    ] = "90"
    name: Annotated[
        str,
        msgspec.Meta(pattern=r"^[A-Za-z0-9_.+-]{1,63}$"),
        Doc("The plugin's name in the runtime's log."),
    ] = "podgpu"
    inject: Annotated[
        Literal["off", "koordinator"],
        Doc("Whose annotation on a pod becomes NVIDIA_VISIBLE_DEVICES in its new containers."),
    ] = "off"
    max_age: Annotated[
        Duration,
        AtLeast("1m"),
        Doc("How long what the runtime said stands once the connection is lost."),
    ] = Duration.parse("5m")
