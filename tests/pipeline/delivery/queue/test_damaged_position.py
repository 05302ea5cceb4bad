"""R4: damaged bytes in what keeps a queue's position, in all copies of it at once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.delivery.contract import Queue
from pipeline.delivery.queue.factory import inspect
from tests.pipeline.delivery.queue.breaking import folder
from tests.pipeline.delivery.queue.support import Bench, checked, drain, fill, numbers, settle

SLOT, SLOTS = 8192, 4


def kept(tmp_path: Path) -> tuple[Bench, Queue, bytes]:
    """A queue of five records of which two are done with, and what its cursor has then."""
    bench = folder(tmp_path)
    queue = bench.open()
    put = fill(queue, 5)
    settle(queue, put[:2])
    queue.close()
    return bench, bench.open(), (bench.path / "cursor").read_bytes()


def damages(sound: bytes) -> Iterator[bytes]:
    """Yield a cursor in each slot of which the same byte is damaged."""
    used = max(len(sound[at : at + SLOT].rstrip(b"\0")) for at in range(0, SLOT * SLOTS, SLOT))
    assert used > 100
    for place in range(used):
        data = bytearray(sound)
        for slot in range(SLOTS):
            data[slot * SLOT + place] ^= (0xFF, 0x01, 0x80)[place % 3]
        yield bytes(data)


def test_r4_a_damaged_position_costs_no_record(tmp_path: Path) -> None:
    """What was done with may be sent again; what was not is there, and all points are counted."""
    bench, queue, sound = kept(tmp_path)
    queue.close()
    segments = {path: path.read_bytes() for path in bench.path.glob("*.seg")}
    given_out = 0
    for data in damages(sound):
        for path, content in segments.items():
            path.write_bytes(content)
        (bench.path / "cursor").write_bytes(data)
        inspect(bench.path)
        queue = bench.open()
        given_out += bool(checked(queue).faults)
        assert numbers(drain(queue))[-3:] == [2, 3, 4]
        put = fill(queue, 1, start=9)
        queue.close()
        queue = bench.open()
        assert drain(queue) == put, "a new one is begun"
        assert checked(queue).totals.queued == 0
        queue.close()
        for path in set(bench.path.glob("*.seg")) - segments.keys():
            path.unlink()
    assert given_out > 100


@pytest.mark.parametrize("mask", [0xFF, 0x01])
def test_r4_a_position_that_is_damaged_while_it_runs_is_written_again(
    mask: int, tmp_path: Path
) -> None:
    bench, queue, sound = kept(tmp_path)
    for place in range(0, 300, 3):
        with (bench.path / "cursor").open("r+b") as file:
            for slot in range(SLOTS):
                file.seek(slot * SLOT + place)
                file.write(bytes([sound[slot * SLOT + place] ^ mask]))
        fill(queue, 2, start=place)
        assert numbers(drain(queue))[-2:] == [place, place + 1]
        assert checked(queue).totals.queued == 0
    queue.close()
    queue = bench.open()
    assert drain(queue) == []
    queue.close()
