"""What `podgpu doctor` looks at for the hostengine source: the library, and who listens."""

import os
import socket
from functools import partial
from typing import Final

from pipeline.doctor.checks import CHECKS
from pipeline.doctor.context import DoctorContext, in_thread
from pipeline.doctor.findings import Finding
from sources.hostengine.library import DcgmError, Library
from sources.hostengine.options import Options

_SECONDS: Final = 5.0


async def examine(options: Options, _ctx: DoctorContext) -> list[Finding]:
    """Check `hostengine.library` and `hostengine.address`."""
    library = await in_thread(partial(_library, options))
    return [library, await in_thread(partial(_address, options))]


def _library(options: Options) -> Finding:
    """Load the library; it isn't initialised, so that no engine hears of it."""
    check, place = CHECKS["hostengine.library"], str(options.library or "libdcgm.so.4, .so.3")
    try:
        found = Library(options.library)
    except DcgmError as error:
        mend = (
            "add DCGM's client library to the image (package datacenter-gpu-manager), or mount it "
            "and set library to its path"
        )
        return check.failure(place, str(error), mend)
    return check.ok(place, f"{found.name} is here")


def _address(options: Options) -> Finding:
    check = CHECKS["hostengine.address"]
    try:
        _connect(options)
    except OSError as error:
        saw = f"nobody answers: {os.strerror(error.errno).lower() if error.errno else error}"
        mend = (
            "start nv-hostengine on the node (service nvidia-dcgm), or set address to where it is"
        )
        return check.failure(options.address, saw, mend)
    return check.ok(options.address, "somebody listens")


def _connect(options: Options) -> None:
    if options.socket:
        with socket.socket(socket.AF_UNIX) as unix:
            unix.settimeout(_SECONDS)
            unix.connect(options.socket)
        return
    host, _, port = options.address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS).close()
