"""The main function of the daemon: signals, reload of the configuration file, exit status."""

import asyncio
import logging
import os
import signal
from pathlib import Path

from config.errors import ConfigError
from config.loader import load
from config.schema import Config
from pipeline.base.errors import PermanentError
from pipeline.base.logs import ROOT, set_up
from pipeline.component.registry import RegisteredKinds
from pipeline.host.daemon_threads import DaemonExecutor
from pipeline.runtime.config_reload import FileWatch
from pipeline.runtime.runtime import Runtime
from pipeline.runtime.signals import stop_on_signals

EXIT_CONFIG = 2
"""Exit status after an error that only another configuration can fix."""


async def run(runtime: Runtime, path: Path | None, *, stop: asyncio.Event | None = None) -> int:
    """Run until SIGTERM, SIGINT or `stop`; reload files when they change.

    SIGHUP reloads the file at `path` and the counters list, changed or not.

    Returns:
        The exit status: 0 after a normal stop, 2 if the configuration cannot work.
    """
    stop = stop or asyncio.Event()
    log = logging.getLogger(ROOT)
    loop = asyncio.get_running_loop()
    loop.set_default_executor(DaemonExecutor("podgpu-files", threads=4))
    stop_on_signals(stop, log)
    watch = FileWatch(path, log) if path is not None else None

    def handle_sighup() -> None:
        if watch is not None:
            watch.ask()
        if not runtime.reread() and watch is None:
            log.info("SIGHUP: podgpu runs without a configuration file; there is nothing to reload")

    loop.add_signal_handler(signal.SIGHUP, handle_sighup)
    status = 0
    try:
        async with asyncio.TaskGroup() as group:
            reloading = group.create_task(_reload_on_change(runtime, watch), name="reload")
            await runtime.run(stop)
            reloading.cancel()
    except* PermanentError as found:
        for text in texts(found):
            log.error("%s", text)
        status = EXIT_CONFIG
    return status


def texts(found: BaseExceptionGroup[BaseException]) -> list[str]:
    """Return the texts of all errors of a group and of its nested groups."""
    messages: list[str] = []
    for error in found.exceptions:
        messages += texts(error) if isinstance(error, BaseExceptionGroup) else [str(error)]
    return messages


async def _reload_on_change(runtime: Runtime, watch: FileWatch | None) -> None:
    if watch is not None:
        async for asked in watch.changed():
            await reload(runtime, watch.path, asked=asked)


async def reload(runtime: Runtime, path: Path, *, asked: bool = False) -> bool:
    """Read the file, and use it if it is valid; return whether the file's content is in use.

    Args:
        runtime: the running podgpu.
        path: the file.
        asked: whether a user requested the reload; then log a message even if nothing has changed.

    Raises:
        CancelledError: podgpu stops.
    """
    log = logging.getLogger(ROOT)
    try:
        config: Config = await asyncio.to_thread(load, path, RegisteredKinds(), env=os.environ)
    except ConfigError as error:
        log.error(
            "configuration not reloaded; podgpu continues with the previous configuration:\n%s",
            error,
        )
        runtime.attempts.count("configuration", "refused")
        return False
    if config == runtime.config:
        runtime.attempts.note_unchanged("configuration")
        if asked:
            log.info("configuration unchanged")
        return True
    done = await runtime.reload(config)
    runtime.attempts.count("configuration", "done" if done else "failed")
    if done:
        set_up(config.log.level, config.log.format)
        log.info("configuration reloaded")
    return done
