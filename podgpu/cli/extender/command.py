"""Run the scheduler extender until a signal."""

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
    """`podgpu extender`: run until a signal; return 0, or 2 if the settings cannot be used."""
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
    """Check that the kubeconfig can be read, since it will not appear later as a pod's token does.

    Raises:
        PermanentError: the kubeconfig cannot be read.
    """
    path = settings.kubeconfig
    try:
        if path is not None:
            path.open("rb").close()
    except OSError as error:
        message = f"--kubeconfig {path}: {error.strerror}; give a file that podgpu can read"
        raise PermanentError(message) from error


async def _main(settings: Settings, log: logging.Logger) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().set_default_executor(DaemonExecutor("podgpu-files", threads=4))
    stop_on_signals(stop, log)
    log.info(
        "starting: reads annotation %s of the Nodes; these resources count as GPUs: %s",
        settings.annotation,
        ", ".join(settings.resources),
    )
    try:
        await Extender(settings).run(stop)
    finally:
        ignore_signals()
