"""R4: tests of a cursor that is damaged in all its slots at the same byte."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.delivery.queue.memory_queue import MemoryQueue
from tests.pipeline.delivery.queue.corruption import folder
from tests.pipeline.delivery.queue.support import Bench, checked, drain, fill, numbers, settle

SLOT, SLOTS = 8192, 4


def queue_with_cursor(tmp_path: Path) -> tuple[Bench, MemoryQueue, bytes]:
    """Return a queue of five records, two of them settled, and the bytes of its cursor."""
    bench = folder(tmp_path)
    queue = bench.open()
    put = fill(queue, 5)
    settle(queue, put[:2])
    queue.close()
    return bench, bench.open(), (bench.path / "cursor").read_bytes()


def damages(intact: bytes) -> Iterator[bytes]:
    """Yield cursors with the same byte damaged in all slots."""
    used = max(len(intact[at : at + SLOT].rstrip(b"\0")) for at in range(0, SLOT * SLOTS, SLOT))
    assert used > 100
    for place in range(used):
        data = bytearray(intact)
        for slot in range(SLOTS):
            data[slot * SLOT + place] ^= (0xFF, 0x01, 0x80)[place % 3]
        yield bytes(data)


@pytest.mark.slow
def test_r4_a_damaged_position_loses_no_record(tmp_path: Path) -> None:
    """R4: settled records may be sent again; all others are still there, and are counted."""
    bench, queue, intact = queue_with_cursor(tmp_path)
    queue.close()
    segments = {path: path.read_bytes() for path in bench.path.glob("*.seg")}
    with_faults = 0
    for data in damages(intact):
        for path, content in segments.items():
            path.write_bytes(content)
        (bench.path / "cursor").write_bytes(data)
        queue = bench.open()
        with_faults += bool(checked(queue).faults)
        assert numbers(drain(queue))[-3:] == [2, 3, 4]
        put = fill(queue, 1, start=9)
        queue.close()
        queue = bench.open()
        assert drain(queue) == put, "a new position is written"
        assert checked(queue).totals.queued == 0
        queue.close()
        for path in set(bench.path.glob("*.seg")) - segments.keys():
            path.unlink()
    assert with_faults > 100


@pytest.mark.parametrize("mask", [0xFF, 0x01])
def test_r4_a_position_damaged_while_the_queue_is_open_is_written_again(
    mask: int, tmp_path: Path
) -> None:
    bench, queue, intact = queue_with_cursor(tmp_path)
    for place in range(0, 300, 3):
        with (bench.path / "cursor").open("r+b") as file:
            for slot in range(SLOTS):
                file.seek(slot * SLOT + place)
                file.write(bytes([intact[slot * SLOT + place] ^ mask]))
        fill(queue, 2, start=place)
        assert numbers(drain(queue))[-2:] == [place, place + 1]
        assert checked(queue).totals.queued == 0
    queue.close()
    queue = bench.open()
    assert drain(queue) == []
    queue.close()
