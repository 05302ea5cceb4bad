"""The checks of `podgpu doctor` for the hostengine source: the library, and the address."""

import asyncio
import os
import socket
from functools import partial
from typing import Final

from pipeline.component.findings import FAILS, Check, Finding
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
    """Check the library; a file system that hangs affects only this check."""
    check, place = Check("hostengine.library", FAILS), str(options.library or "libdcgm.so.4, .so.3")
    if options.library is not None and not ctx.allowed.library(options.library):
        return check.skip(place, "podgpu doctor may not load it: see the check config")
    timeout_s = ctx.deadline * PART
    try:
        async with asyncio.timeout(2.5 * timeout_s):
            return await in_thread(partial(_load, options, check, place, timeout_s))
    except TimeoutError:
        observed = f"reading the library takes longer than {2.5 * timeout_s:g} s"
        return check.failure(place, observed, "check the file system of the library")


def _load(options: Options, check: Check, place: str, timeout_s: float) -> Finding:
    """Load the library without initialising it, so that no host engine is affected. Blocking."""
    names = NAMES if options.library is None else (str(options.library),)
    for name in names:
        try:
            ready(name)
        except NoLibraryFileError as error:
            return check.failure(place, str(error), "set library to DCGM's client library")
        observed, fix = try_loading(name, timeout_s / len(names))
        if observed:
            return check.failure(place, f"{name}: {observed}" if name != place else observed, fix)
    try:
        found = Library(options.library)
    except DcgmError as error:
        fix = (
            "add DCGM's client library to the image (package datacenter-gpu-manager), or mount it "
            "and set library to its path"
        )
        return check.failure(place, str(error), fix)
    return check.ok(place, f"found {found.name}")


def _address(options: Options) -> Finding:
    check = Check("hostengine.address", FAILS)
    try:
        if options.socket:
            with socket.socket(socket.AF_UNIX) as unix:
                unix.settimeout(_SECONDS)
                unix.connect(options.socket)
        else:
            host, _, port = options.address.rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS).close()
    except (socket.gaierror, UnicodeError):
        host = options.address.rpartition(":")[0]
        fix = (
            "write a name that the node's or the cluster's DNS resolves (with hostNetwork, a name "
            "of a Service requires dnsPolicy: ClusterFirstWithHostNet), or an address"
        )
        return check.failure(options.address, f"cannot resolve the name {host}", fix)
    except OSError as error:
        observed = f"cannot connect: {os.strerror(error.errno).lower() if error.errno else error}"
        fix = (
            "start nv-hostengine on the node (service nvidia-dcgm), or set address to the engine's"
        )
        return check.failure(options.address, observed, fix)
    return check.ok(options.address, "accepts connections")
