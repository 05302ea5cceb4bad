"""Record the simulated part of the demo, GPUs 4 to 7, in real time.

    python -m tests.demo.simulated OUTPUT [--all] [--seconds 215]

`podgpu record` runs on the simulated NVML, and on a simulated kubelet, API server, container
runtime, kernel log and procfs. With `--all`, the GPUs 0 to 3 are simulated, too.
"""

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.demo.cast import Cast, cast
from tests.demo.node import Node

ROOT: Final = Path(__file__).resolve().parents[2]
TICK_S: Final = 0.25
"""How often the readings change."""

Scene = tuple[float, Callable[[], Awaitable[None]]]
"""When something happens, in seconds after the first reading, and what."""


def scenes(node: Node, played: Cast) -> Sequence[Scene]:
    """Return what happens, in the order of time."""

    async def fault() -> None:
        text = "Ch 00000010, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted"
        node.xid(played.shared, 31, text, played.failing)

    async def fall() -> None:
        node.xid(played.shared, 79, "GPU has fallen off the bus.")
        await asyncio.sleep(0.6)
        node.lost.add(played.shared)
        node.play()

    async def restored() -> None:
        node.lost.discard(played.shared)
        node.play()

    async def short() -> None:
        began = time.monotonic()
        await node.start(played.short)
        await asyncio.sleep(max(0.3 - (time.monotonic() - began), 0))
        await node.end(played.short)

    async def forgotten() -> None:
        node.delete(played.short)

    async def hot() -> None:
        node.hot.add(played.disputed)

    async def cool() -> None:
        node.hot.discard(played.disputed)

    return (
        (18, fault),
        (30, short),
        (38, forgotten),
        (50, fall),
        (65, hot),
        (85, restored),
        (115, cool),
    )


async def record(played: Cast, output: Path, seconds: float) -> int:
    """Play the scenes and record them; return the recorder's exit status."""
    with TemporaryDirectory(prefix="podgpu-demo-") as name:
        node = Node(played, Path(name))
        async with node.serving():
            for place, container in enumerate(played.pods, 1):
                await node.start(container, age=timedelta(hours=5 * place, minutes=11 * place))
            words = ["record", "-f", "-c", str(node.configuration()), "-o", str(output)]
            recorder = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "podgpu", *words),
                cwd=ROOT,
                env={**os.environ, **node.environment()},
            )
            try:
                return await _play(node, played, recorder, seconds)
            finally:
                if recorder.returncode is None:
                    recorder.kill()


async def _play(
    node: Node, played: Cast, recorder: asyncio.subprocess.Process, seconds: float
) -> int:
    while recorder.returncode is None and not node.is_read():
        node.play()
        await asyncio.sleep(TICK_S)
    began = time.monotonic()
    acting = [
        asyncio.create_task(_at(began + moment, act))
        for moment, act in scenes(node, played)
        if moment < seconds
    ]
    while recorder.returncode is None and time.monotonic() - began < seconds:
        node.play()
        await asyncio.sleep(TICK_S)
    await asyncio.gather(*acting)
    if recorder.returncode is None:
        recorder.send_signal(signal.SIGTERM)
    return await recorder.wait()


async def _at(moment: float, act: Callable[[], Awaitable[None]]) -> None:
    await asyncio.sleep(max(moment - time.monotonic(), 0))
    await act()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("output", type=Path)
    parser.add_argument("--all", action="store_true", help="simulate all eight GPUs")
    parser.add_argument("--seconds", type=float, default=215)
    arguments = parser.parse_args()
    return asyncio.run(
        record(cast(everything=arguments.all), arguments.output.resolve(), arguments.seconds)
    )


if __name__ == "__main__":
    sys.exit(main())
