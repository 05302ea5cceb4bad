"""What `podgpu doctor` looks at for the hostengine source: the library, and who listens."""

import asyncio
import os
import socket
from functools import partial
from typing import Final

from pipeline.component.check import Check
from pipeline.component.findings import Finding
from pipeline.diagnostics.check_table import CHECKS
from pipeline.diagnostics.context import DoctorContext, in_thread
from pipeline.diagnostics.library_load import PART, try_loading
from pipeline.host.shared_libraries import NoLibraryFileError, ready
from sources.hostengine.library import NAMES, DcgmError, Library
from sources.hostengine.options import Options

_SECONDS: Final = 5.0


async def examine(options: Options, ctx: DoctorContext) -> list[Finding]:
    """Check `hostengine.library` and `hostengine.address`."""
    address = in_thread(partial(_address, options))
    return list(await asyncio.gather(_library(options, ctx), address))


async def _library(options: Options, ctx: DoctorContext) -> Finding:
    """Check the library; a disk that hangs costs this check alone."""
    check, place = CHECKS["hostengine.library"], str(options.library or "libdcgm.so.4, .so.3")
    if options.library is not None and not ctx.allowed.library(options.library):
        return check.skip(place, "it may not be loaded: see the check config")
    patience = ctx.deadline * PART
    try:
        async with asyncio.timeout(2.5 * patience):
            return await in_thread(partial(_loaded, options, check, place, patience))
    except TimeoutError:
        saw = f"reading it hangs: it took longer than {2.5 * patience:g} s"
        return check.failure(place, saw, "see the file system that it is on: mount, file server")


def _loaded(options: Options, check: Check, place: str, timeout_s: float) -> Finding:
    """Load the library; it isn't initialised, so that no engine hears of it. Blocking."""
    names = NAMES if options.library is None else (str(options.library),)
    for name in names:
        try:
            ready(name)
        except NoLibraryFileError as error:
            return check.failure(place, str(error), "give the path of DCGM's client library")
        saw, mend = try_loading(name, timeout_s / len(names))
        if saw:
            return check.failure(place, f"{name}: {saw}" if name != place else saw, mend)
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
    except (socket.gaierror, UnicodeError):
        host = options.address.rpartition(":")[0]
        mend = (
            "write the name that the node's or the cluster's DNS has (with hostNetwork a Service's "
            "needs dnsPolicy: ClusterFirstWithHostNet), or an address"
        )
        return check.failure(options.address, f"the name {host} can't be resolved", mend)
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
