"""Options of the source `docker`."""

from pathlib import Path
from typing import Annotated

import msgspec

from config.option_markers import AtLeast, Doc
from config.value_types import Duration


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the source `docker`."""

    socket: Annotated[
        Path,
        Doc("The socket of Docker's API, or of Podman's: /run/podman/podman.sock."),
    ] = Path("/var/run/docker.sock")
    timeout: Annotated[
        Duration,
        AtLeast("1s"),
        Doc("How long the daemon may take for one response."),
    ] = Duration.parse("10s")
    max_age: Annotated[
        Duration,
        AtLeast("1m"),
        Doc("How long the daemon's last report stays valid after the connection is lost."),
    ] = Duration.parse("5m")
