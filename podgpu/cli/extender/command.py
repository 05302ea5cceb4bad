"""The command: runs the extender until a signal."""

import argparse
import asyncio
import logging
from typing import Final

from pipeline.base.errors import PermanentError
from pipeline.base.logs import set_up
from pipeline.host.daemon_threads import DaemonExecutor
from pipeline.host.memory_footprint import trim
from pipeline.runtime.signals import ignore_signals, stop_on_signals
from podgpu.extender.server import RESOURCE, Extender, Settings

_EXIT_CONFIG: Final = 2


def run(arguments: argparse.Namespace) -> int:
    """`podgpu extender`; returns 0 after a signal, 2 if what was asked for can't be had."""
    trim(large=True)
    log = set_up("info", "text")
    settings = Settings(
        arguments.listen,
        arguments.kubeconfig,
        arguments.annotation,
        tuple(dict.fromkeys(arguments.resources or (RESOURCE,))),
        arguments.web_config,
        float(arguments.timeout),
        tuple(arguments.allowed_hosts or ()),
    )
    try:
        _check(settings)
        asyncio.run(_main(settings, log))
    except PermanentError as error:
        log.error("%s", error)
        return _EXIT_CONFIG
    return 0


def _check(settings: Settings) -> None:
    """Look at what can't come later by itself, unlike the credentials of a pod.

    Raises:
        PermanentError: the kubeconfig can't be read.
    """
    path = settings.kubeconfig
    try:
        if path is not None:
            path.open("rb").close()
    except OSError as error:
        told = f"--kubeconfig {path}: {error.strerror}; give a file that podgpu may read"
        raise PermanentError(told) from error


async def _main(settings: Settings, log: logging.Logger) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().set_default_executor(DaemonExecutor("podgpu-files", threads=4))
    stop_on_signals(stop, log)
    log.info(
        "starting: follows %s, GPUs are %s", settings.annotation, ", ".join(settings.resources)
    )
    try:
        await Extender(settings).run(stop)
    finally:
        ignore_signals()
