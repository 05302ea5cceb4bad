"""R4: text in a cursor that isn't UTF-8, or a value of another type, makes it no cursor."""

import zlib

import msgspec
import pytest

from pipeline.delivery.queue.disk import cursor


@pytest.mark.parametrize(
    ("old", "new"),
    [(b'"otlp"', b'"\xff"'), (b'"otlp"', b"7"), (b"{", b"[")],
)
def test_r4_a_cursor_whose_checksum_is_right_and_whose_content_is_not(
    old: bytes, new: bytes
) -> None:
    fields = {one.name: one for one in msgspec.structs.fields(cursor.CursorState)}
    required = {name: 0 for name, one in fields.items() if one.required}
    mark = msgspec.convert(required | {"kind": "otlp"}, cursor.CursorState)
    sound = msgspec.json.encode(mark)

    def slot(body: bytes) -> bytes:
        return cursor._HEAD.pack(cursor._MAGIC, len(body), zlib.crc32(body)) + body

    assert cursor._unpack(slot(sound)) == mark
    assert old in sound
    assert cursor._unpack(slot(sound.replace(old, new, 1))) is None
