"""R4: a cursor with text that is not UTF-8, or with a value of another type, is ignored."""

import zlib

import msgspec
import pytest

from pipeline.delivery.queue.disk import cursor


@pytest.mark.parametrize(
    ("old", "new"),
    [(b'"otlp"', b'"\xff"'), (b'"otlp"', b"7"), (b"{", b"[")],
)
def test_r4_a_cursor_with_a_valid_checksum_and_invalid_content_is_ignored(
    old: bytes, new: bytes
) -> None:
    fields = {one.name: one for one in msgspec.structs.fields(cursor.CursorState)}
    required = {name: 0 for name, one in fields.items() if one.required}
    state = msgspec.convert(required | {"kind": "otlp"}, cursor.CursorState)
    intact = msgspec.json.encode(state)

    def slot(body: bytes) -> bytes:
        return cursor._HEAD.pack(cursor._MAGIC, len(body), zlib.crc32(body)) + body

    assert cursor._unpack(slot(intact)) == state
    assert old in intact
    assert cursor._unpack(slot(intact.replace(old, new, 1))) is None
