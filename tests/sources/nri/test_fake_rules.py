"""The fake runtime refuses what would break containerd's NRI connection."""

import struct

import pytest

from tests.fakes.nri.rules import HEADER, BrokenRuleError, Stream


def request(size: int, number: int = 1) -> bytes:
    return HEADER.pack(size, number, 1, 0) + bytes(size)


A, B = request(100), request(100, 3)
LARGE = request(10_000)


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([A], id="a small message in one frame"),
        pytest.param([A[:10], A[10:]], id="header and body"),
        pytest.param([LARGE[:10], LARGE[10:]], id="header and large body"),
        pytest.param([LARGE[:4096], LARGE[4096:]], id="a full buffer and the rest"),
        pytest.param([LARGE[:4], LARGE[4:10], LARGE[10:5000], LARGE[5000:]], id="many frames"),
        pytest.param([A, B], id="two messages"),
    ],
)
def test_frames_that_containerd_accepts_are_accepted(frames: list[bytes]) -> None:
    assert messages_of(Stream(2), frames)


@pytest.mark.parametrize(
    ("frames", "text"),
    [
        pytest.param([LARGE], "a header in a large frame", id="a large message in one frame"),
        pytest.param([LARGE[:4], LARGE[4:]], "a header in a large frame", id="half a header"),
        pytest.param([LARGE[:10], LARGE[10:] + b"x"], "the end of one message", id="an extra byte"),
        pytest.param([A + B], "two messages in one frame", id="two messages"),
        pytest.param([A + B[:5]], "two messages in one frame", id="a message and a part"),
        pytest.param([b""], "a frame of 0 bytes", id="an empty frame"),
        pytest.param([B, A], "call number 1", id="numbers that decrease"),
        pytest.param([request(1, 2)], "call number 2", id="an even number"),
        pytest.param([struct.pack(">IIBB", 0, 1, 2, 0)], "type 2, flags 0", id="another type"),
        pytest.param([HEADER.pack((4 << 20) + 1, 1, 1, 0)], "a message of", id="too large"),
    ],
)
def test_frames_that_break_containerd_are_refused(frames: list[bytes], text: str) -> None:
    stream = Stream(2)
    with pytest.raises(BrokenRuleError, match=text):
        messages_of(stream, frames)


def messages_of(stream: Stream, frames: list[bytes]) -> list[tuple[int, bytes]]:
    return [message for frame in frames for message in stream.frame(frame)]
