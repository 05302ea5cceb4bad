"""The options of the hostengine source."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from config.option_markers import AtLeast, Doc, LeadsTo
from config.value_types import Duration

_SOCKET: Final = "unix://"
_HOST_PORT: Final = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a source of kind `hostengine`."""

    address: Annotated[
        str,
        Doc("The host engine: host:port, or the path of its socket."),
    ] = "localhost:5555"
    interval: Annotated[
        Duration,
        AtLeast("100ms"),
        Doc("How often readings are taken; the host engine averages over that time."),
    ] = Duration.parse("15s")
    fields: Annotated[
        Literal["missing", "all"],
        Doc(
            "missing reads only GPUs before Hopper, whose profiling fields NVML does not provide; "
            "all reads every GPU."
        ),
    ] = "missing"
    library: Annotated[
        Path | None,
        LeadsTo("library"),
        Doc("DCGM's client library; by default, the linker finds libdcgm.so.4 or libdcgm.so.3."),
    ] = None
    timeout: Annotated[
        Duration,
        AtLeast("100ms"),
        Doc("How long the host engine may take to connect and to respond."),
    ] = Duration.parse("5s")

    @property
    def socket(self) -> str:
        """Path of the host engine's socket; empty if the address is a host and a port."""
        path = self.address.removeprefix(_SOCKET)
        return path if path.startswith("/") else ""

    def problems(self) -> Iterable[tuple[str, str]]:
        """Refuse an address that is neither host:port nor the path of a socket."""
        match = _HOST_PORT.fullmatch(self.address)
        port = int(match[1]) if match else 0
        if not self.socket and not 0 < port < 1 << 16:
            yield "address", "is not valid: write host:port (localhost:5555), or a socket's path"
