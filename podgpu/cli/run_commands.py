"""The commands `run`, `demo` and `record`, which run until a signal."""

import argparse
import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from config.schema import Config, Http
from pipeline.base.logs import set_up
from pipeline.base.version import VERSION
from pipeline.component.code_permissions import NOTHING, Allowed
from podgpu.cli.config_location import built_in, located
from podgpu.cli.shared_options import allowed_of


def run(arguments: argparse.Namespace) -> int:
    """`podgpu run`: run the daemon."""
    config, path = located(arguments.config)
    return serve(config, path, allowed=allowed_of(arguments))


def demo(arguments: argparse.Namespace) -> int:
    """`podgpu demo`: run the daemon on the shipped recording, in a loop."""
    env = dict(os.environ)
    if arguments.listen:
        env["PODGPU_LISTEN"] = str(arguments.listen)
    return serve(built_in("demo.yaml", env), None)


def serve(
    config: Config,
    path: Path | None,
    first_messages: Iterable[tuple[int, str]] = (),
    allowed: Allowed = NOTHING,
) -> int:
    """Run the daemon until a signal and return its exit status.

    Args:
        config: the configuration.
        path: the configuration file, which is watched for changes; None if there is none.
        first_messages: log levels of `logging` and texts to log first.
        allowed: external code of the configuration that may run.
    """
    # Imported here, because only the daemon needs it and other commands should start fast.
    from pipeline.host.memory_footprint import trim
    from pipeline.runtime import daemon
    from pipeline.runtime.runtime import Runtime
    from pipeline.runtime.signals import ignore_signals

    trim()
    log = set_up(config.log.level, config.log.format)
    for level, text in first_messages:
        log.log(level, "%s", text)

    async def main() -> int:
        runtime = Runtime(config, allowed=allowed)
        log.info(
            "starting: sources %s, sinks %s", ", ".join(config.sources), ", ".join(config.sinks)
        )
        try:
            return await daemon.run(runtime, path)
        finally:
            ignore_signals()

    return asyncio.run(main())


def record(arguments: argparse.Namespace) -> int:
    """`podgpu record`: write the events of all sources to a file, without sinks."""
    from pipeline.base.clock import SystemClock
    from pipeline.recording import Header, RecordingError, RecordingWriter
    from pipeline.runtime import daemon
    from pipeline.runtime.runtime import Runtime, node_name
    from pipeline.runtime.signals import ignore_signals

    config, _ = located(arguments.config)
    config = msgspec.structs.replace(config, sinks={}, http=Http())
    log = set_up(config.log.level, config.log.format)
    header = Header(VERSION, node_name(config), SystemClock().now())

    async def main(writer: RecordingWriter) -> int:
        stop = asyncio.Event()
        if arguments.duration is not None:
            asyncio.get_running_loop().call_later(float(arguments.duration), stop.set)
        log.info("recording into %s; Ctrl-C ends it", arguments.output)
        runtime = Runtime(config, taps=(writer.write,), allowed=allowed_of(arguments))
        try:
            return await daemon.run(runtime, None, stop=stop)
        finally:
            ignore_signals()

    status = 0
    try:
        with RecordingWriter(arguments.output, header, overwrite=arguments.force) as writer:
            status = asyncio.run(main(writer))
    except* RecordingError as found:
        for text in daemon.texts(found):
            log.error("%s", text)
        status = daemon.EXIT_CONFIG
    return status
