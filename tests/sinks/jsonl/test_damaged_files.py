"""R4: damaged bytes in an existing file do not damage new lines."""

import gzip
import json
from pathlib import Path

import pytest

from sinks.jsonl.rotated_files import Rotated
from tests.sinks.jsonl.support import Bench, options


@pytest.mark.slow
async def test_r4_new_lines_after_a_damaged_end_are_valid(tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    bench = Bench(options(path))
    async with bench.writing():
        await bench.write(2)
    intact = path.read_bytes()
    last = intact.rindex(b"\n", 0, len(intact) - 1) + 1
    for place in range(last, len(intact), 3):  # 3 and 4 have no common factor: all kinds of damage
        value = (intact[place] ^ 0x80, intact[place] ^ 0x01, 0, ord("\n"))[place % 4]
        damaged = intact[:place] + bytes([value]) + intact[place + 1 :]
        path.write_bytes(damaged)
        bench = Bench(options(path))
        async with bench.writing():
            await bench.write(1)
        found = path.read_bytes()
        assert found.startswith(intact[:last])
        assert json.loads(found.splitlines()[-1])
        assert (bench.emitted, bench.dropped) == (1, {})


@pytest.mark.parametrize("size", [0, 3, 7, 8, 15, 200])
def test_r4_a_damaged_compressed_file_does_not_remove_the_plain_file(
    size: int, tmp_path: Path
) -> None:
    plain, packed = tmp_path / "gpu.jsonl.1", tmp_path / "gpu.jsonl.1.gz"
    plain.write_bytes(b'{"a": 1}\n' * 100)
    intact = gzip.compress(plain.read_bytes(), mtime=int(plain.stat().st_mtime))
    rotated = Rotated(tmp_path / "gpu.jsonl", 3)
    for place in (*range(8), *range(len(intact) - 4, len(intact))):
        damaged = bytearray(intact)
        damaged[place] ^= 0xFF
        packed.write_bytes(damaged[:size])
        rotated.sweep()
        assert plain.exists(), place
