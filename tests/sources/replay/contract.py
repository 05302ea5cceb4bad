"""Options of the source `replay` for the contract tests."""

from pathlib import Path

from pipeline.model import DevicesDiscovered, Envelope, Instant
from pipeline.recording import Header, RecordingWriter
from sources.replay.options import Options
from tests.support.nodes import gpu


def options(folder: Path) -> Options:
    path = folder / "recording.podgpu.gz"
    start = Instant(0, 1_800_000_000_000_000_000)
    with RecordingWriter(path, Header("0", "node-1", start)) as writer:
        event = DevicesDiscovered((gpu(0),))
        for second in range(3):
            at = Instant(second * 100_000_000, start.wall_ns + second * 100_000_000)
            writer.write(Envelope("gpus", "nvml", second + 1, at, event))
    return Options(path=str(path), loop=True)
