"""Options of the hostengine source."""

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
    """Which host engine, and what it is asked for."""

    address: Annotated[
        str,
        Doc("The host engine: host:port, or the path of its socket."),
    ] = "localhost:5555"
    interval: Annotated[
        Duration,
        AtLeast("100ms"),
        Doc("How often readings are taken; the engine averages over that time."),
    ] = Duration.parse("15s")
    fields: Annotated[
        Literal["missing", "all"],
        Doc(
            "missing asks for GPUs before Hopper alone, whose profiling fields NVML can't give; "
            "all for every GPU."
        ),
    ] = "missing"
    library: Annotated[
        Path | None,
        LeadsTo("library"),
        Doc(
            "DCGM's client library; left out, libdcgm.so.4 and libdcgm.so.3 where the linker looks."
        ),
    ] = None
    timeout: Annotated[
        Duration,
        AtLeast("100ms"),
        Doc("How long the engine may take to connect and to answer."),
    ] = Duration.parse("5s")

    @property
    def socket(self) -> str:
        """Path of the engine's socket; empty where it is a host and a port."""
        path = self.address.removeprefix(_SOCKET)
        return path if path.startswith("/") else ""

    def problems(self) -> Iterable[tuple[str, str]]:
        """Refuse what is neither of the two."""
        match = _HOST_PORT.fullmatch(self.address)
        port = int(match[1]) if match else 0
        if not self.socket and not 0 < port < 1 << 16:
            yield "address", "is no address: write localhost:5555, or the path of a socket"
