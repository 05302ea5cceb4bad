"""R4: damaged bytes in what was written before cost none of what is written now."""

import gzip
import json
from pathlib import Path

import pytest

from sinks.jsonl.rotated_files import Rotated
from tests.sinks.jsonl.support import Bench, options


async def test_r4_after_a_damaged_end_lines_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    bench = Bench(options(path))
    async with bench.writing():
        await bench.write(2)
    sound = path.read_bytes()
    last = sound.rindex(b"\n", 0, len(sound) - 1) + 1
    for place in range(last, len(sound)):
        value = (sound[place] ^ 0x80, sound[place] ^ 0x01, 0, ord("\n"))[place % 4]
        damaged = sound[:place] + bytes([value]) + sound[place + 1 :]
        path.write_bytes(damaged)
        bench = Bench(options(path))
        async with bench.writing():
            await bench.write(1)
        found = path.read_bytes()
        assert found.startswith(sound[:last])
        assert json.loads(found.splitlines()[-1])
        assert (bench.emitted, bench.dropped) == (1, {})


@pytest.mark.parametrize("size", [0, 3, 7, 8, 15, 200])
def test_r4_a_damaged_compressed_file_is_no_reason_to_remove_the_plain_one(
    size: int, tmp_path: Path
) -> None:
    plain, packed = tmp_path / "gpu.jsonl.1", tmp_path / "gpu.jsonl.1.gz"
    plain.write_bytes(b'{"a": 1}\n' * 100)
    sound = gzip.compress(plain.read_bytes(), mtime=int(plain.stat().st_mtime))
    rotated = Rotated(tmp_path / "gpu.jsonl", 3)
    for place in (*range(8), *range(len(sound) - 4, len(sound))):
        damaged = bytearray(sound)
        damaged[place] ^= 0xFF
        packed.write_bytes(damaged[:size])
        rotated.sweep()
        assert plain.exists(), place
