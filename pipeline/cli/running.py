"""Commands that run: `run`, `demo`, `record`."""

import argparse
import asyncio
import os
from pathlib import Path

import msgspec

from config.schema import Config
from pipeline.cli.locating import built_in, located
from pipeline.logs import set_up
from pipeline.version import VERSION


def run(arguments: argparse.Namespace) -> int:
    """`podgpu run`: the daemon."""
    config, path = located(arguments.config)
    return _daemon(config, path)


def demo(arguments: argparse.Namespace) -> int:
    """`podgpu demo`: the shipped recording, over and over."""
    env = dict(os.environ)
    if arguments.listen:
        env["PODGPU_LISTEN"] = str(arguments.listen)
    return _daemon(built_in("demo.yaml", env), None)


def _daemon(config: Config, path: Path | None) -> int:
    # What only the running daemon needs is imported here, so that the other commands stay light.
    from pipeline import daemon
    from pipeline.footprint import trim
    from pipeline.runtime import Runtime

    trim()
    log = set_up(config.log.level, config.log.format)

    async def main() -> int:
        runtime = Runtime(config)
        log.info(
            "starting: sources %s, sinks %s", ", ".join(config.sources), ", ".join(config.sinks)
        )
        return await daemon.run(runtime, path)

    return asyncio.run(main())


def record(arguments: argparse.Namespace) -> int:
    """`podgpu record`: the sources' events into a file, with no sink."""
    from pipeline import daemon
    from pipeline.clock import SystemClock
    from pipeline.recording import Header, RecordingError, RecordingWriter
    from pipeline.runtime import Runtime, node_name

    config, _ = located(arguments.config)
    config = msgspec.structs.replace(config, sinks={})
    log = set_up(config.log.level, config.log.format)
    header = Header(VERSION, node_name(config), SystemClock().now())

    async def main(writer: RecordingWriter) -> int:
        stop = asyncio.Event()
        if arguments.duration is not None:
            asyncio.get_running_loop().call_later(float(arguments.duration), stop.set)
        log.info("recording into %s; Ctrl-C ends it", arguments.output)
        return await daemon.run(Runtime(config, taps=(writer.write,)), None, stop=stop)

    status = 0
    try:
        with RecordingWriter(arguments.output, header, overwrite=arguments.force) as writer:
            status = asyncio.run(main(writer))
    except* RecordingError as found:
        for text in daemon.texts(found):
            log.error("%s", text)
        status = daemon.EXIT_CONFIG
    return status
