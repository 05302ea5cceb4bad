"""Tests of the cursor file: it always contains a complete state."""

import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.delivery.queue.disk.cursor import CursorFile, CursorState

SLOT = 8192


def read_cursor(path: Path) -> tuple[CursorState | None, bool]:
    """Return the state in a cursor file, and whether a state in it is corrupt."""
    file = CursorFile(path)
    file.close()
    return file.state, file.broken


def torn(now: bytes, before: bytes) -> bytes:
    """Return the file with only the first bytes of each slot that was written since `before`."""
    slots = []
    for start in range(0, len(now), SLOT):
        new, old = now[start : start + SLOT], before[start : start + SLOT]
        slots.append(new if new == old else new[:40] + bytes(SLOT - 40))
    return b"".join(slots)


@pytest.mark.parametrize("reopened", [1, 2, 3, 100])
@pytest.mark.parametrize("refused", [False, True])
def test_d4_the_last_flushed_state_survives_torn_later_writes(
    tmp_path: Path, reopened: int, *, refused: bool
) -> None:
    path, after = tmp_path / "cursor", tmp_path / "after"
    cursor = CursorFile(path)
    cursor.save(CursorState(position=0), to_flush=True)
    cursor.mark_flushed()
    before = path.read_bytes()
    for position in range(1, 12):
        if position % reopened == 0:
            cursor.close()
            cursor = CursorFile(path)
        for _ in range(position % 4):
            cursor.save(CursorState(position=position))
        cursor.save(CursorState(position=position), to_flush=True)
        if refused:
            cursor.save(CursorState(position=position), to_flush=True)
        after.write_bytes(torn(path.read_bytes(), before))
        state, corrupt = read_cursor(after)
        assert state is not None
        assert state.position == position - 1
        assert corrupt
        cursor.mark_flushed()
        before = path.read_bytes()
    cursor.close()


def test_d3_a_torn_write_leaves_the_previous_state(tmp_path: Path) -> None:
    path, after = tmp_path / "cursor", tmp_path / "after"
    cursor = CursorFile(path)
    cursor.save(CursorState(position=0))
    for position in range(1, 6):
        before = path.read_bytes()
        cursor.save(CursorState(position=position))
        after.write_bytes(torn(path.read_bytes(), before))
        state, _ = read_cursor(after)
        assert state is not None
        assert state.position == position - 1
    cursor.close()


def test_the_last_saved_state_is_read(tmp_path: Path) -> None:
    cursor = CursorFile(tmp_path / "cursor")
    assert cursor.state is None
    assert not cursor.broken
    for position in range(7):
        cursor.save(CursorState(position=position, acked=position, dropped={"corrupt": 1}))
    cursor.close()
    again = CursorFile(tmp_path / "cursor")
    assert again.state == CursorState(generation=7, position=6, acked=6, dropped={"corrupt": 1})
    assert (tmp_path / "cursor").stat().st_size == 4 * SLOT
    again.close()


@given(data=st.binary(max_size=300), place=st.integers(0, 4 * SLOT))
def test_f1_arbitrary_bytes_are_no_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, place: int
) -> None:
    path = tmp_path_factory.mktemp("any") / "cursor"
    path.write_bytes(bytes(place) + data)
    cursor = CursorFile(path)
    assert cursor.state is None
    cursor.save(CursorState(position=3))
    cursor.close()
    state, _ = read_cursor(path)
    assert state is not None
    assert state.position == 3


@pytest.mark.parametrize(
    "body",
    [b"{}", b"[]", b"nonsense", b'{"position":-1}', b'{"dropped":{"a":-1}}', b'{"acked":1e99}'],
)
def test_f1_a_slot_with_a_valid_checksum_and_invalid_content_is_ignored(
    tmp_path: Path, body: bytes
) -> None:
    path = tmp_path / "cursor"
    path.write_bytes(struct.pack("<4sII", b"pgc1", len(body), zlib.crc32(body)) + body)
    state, corrupt = read_cursor(path)
    assert (state == CursorState(), corrupt) == ((True, False) if body == b"{}" else (False, True))
