"""A queue on disk, and the corruption of its bytes."""

from pathlib import Path

from tests.pipeline.delivery.queue.support import Bench


def folder(tmp_path: Path, name: str = "queue") -> Bench:
    return Bench("disk", tmp_path / name)


def flipped(data: bytes, place: int, bit: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]
