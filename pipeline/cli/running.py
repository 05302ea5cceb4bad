"""Commands that run: `run`, `demo`, `record`."""

import argparse
import asyncio
import os
from pathlib import Path

import msgspec

from config.schema import Config
from pipeline.cli.locating import built_in, located
from pipeline.logs import set_up


def run(arguments: argparse.Namespace) -> int:
    """`podgpu run`: the daemon."""
    config, path = located(arguments.config)
    return _daemon(config, path)


def demo(arguments: argparse.Namespace) -> int:
    """`podgpu demo`: the shipped recording, over and over."""
    env = dict(os.environ)
    if arguments.listen:
        env["PODGPU_LISTEN"] = arguments.listen
    return _daemon(built_in("demo.yaml", env), None)


def _daemon(config: Config, path: Path | None) -> int:
    # What only the running daemon needs is imported here, so that the other commands stay light.
    from pipeline import daemon
    from pipeline.runtime import Runtime

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
    from pipeline.recording import RecordingWriter
    from pipeline.runtime import Runtime

    config, _ = located(arguments.config)
    config = msgspec.structs.replace(config, sinks={})
    log = set_up(config.log.level, config.log.format)

    async def main() -> int:
        stop = asyncio.Event()
        with RecordingWriter(arguments.output, node=config.node) as writer:
            if arguments.duration is not None:
                asyncio.get_running_loop().call_later(float(arguments.duration), stop.set)
            log.info("recording into %s", arguments.output)
            status = await daemon.run(Runtime(config, taps=(writer.write,)), None, stop=stop)
        log.info("recorded %d events", writer.count)
        return status

    return asyncio.run(main())
