"""Frames and messages of mux and ttrpc: exact bytes, pieces of any size, and limits."""

import random
import struct

import pytest

from sources.nri import messages, mux, ttrpc
from sources.nri.mux import ConnectionLostError
from sources.nri.plugin import mask

REGISTER = bytes.fromhex(
    "000000020000004a 00000040000000010100"
    "0a1c6e72692e706b672e6170692e7631616c706861312e52756e74696d65"
    "120e5265676973746572506c7567696e 1a0a0a0467707564120239302080e497d012"
)
CONFIGURED = bytes.fromhex("000000010000000f 00000005000000010200 120310d70c")
REFUSED = bytes.fromhex(
    "0000000100000024 0000001a000000030200 0a18080c12146d6574686f642052756e506f6453616e64626f78"
)
DONE = bytes.fromhex("000000010000000a 00000000000000050200")


def only_frame(vector: bytes) -> tuple[int, bytes]:
    """Return the channel and the content of the only frame."""
    ((channel, piece),) = mux.Demultiplexer().feed(vector)
    return channel, bytes(piece)


@pytest.mark.parametrize(
    ("vector", "channel", "encoded"),
    [
        pytest.param(
            REGISTER,
            mux.RUNTIME,
            ttrpc.request(
                1,
                messages.RUNTIME_SERVICE,
                "RegisterPlugin",
                messages.encode("RegisterPluginRequest", plugin_name="gpud", plugin_idx="90"),
                5,
            ),
            id="RegisterPlugin",
        ),
        pytest.param(
            CONFIGURED,
            mux.PLUGIN,
            ttrpc.success(1, messages.encode("ConfigureResponse", events=0x657)),
            id="response to Configure",
        ),
        pytest.param(
            REFUSED,
            mux.PLUGIN,
            ttrpc.failure(3, ttrpc.UNIMPLEMENTED, "method RunPodSandbox"),
            id="error",
        ),
        pytest.param(DONE, mux.PLUGIN, ttrpc.success(5), id="empty response"),
    ],
)
def test_encoded_messages_have_the_bytes_that_runtimes_accept(
    vector: bytes, channel: int, encoded: ttrpc.Encoded
) -> None:
    assert only_frame(vector) == (channel, b"".join(encoded))


def test_header_and_body_are_sent_in_separate_frames() -> None:
    header, body = ttrpc.success(1, b"x" * 100)
    assert b"".join(mux.frames(1, header, body)) == (
        b"\0\0\0\1\0\0\0\x0a" + header + b"\0\0\0\1" + len(body).to_bytes(4, "big") + body
    )
    assert b"".join(mux.frames(1, *ttrpc.success(5))) == DONE


def assembled(data: bytes, cut: int) -> list[tuple[int, ttrpc.Frame]]:
    frames, assemblers = mux.Demultiplexer(), {1: ttrpc.Assembler(), 2: ttrpc.Assembler()}
    return [
        (channel, frame)
        for at in range(0, len(data), cut)
        for channel, piece in frames.feed(data[at : at + cut])
        for frame in assemblers[channel].feed(piece)
    ]


def frame(channel: int, data: bytes) -> bytes:
    return struct.pack(">II", channel, len(data)) + data


def wire(size: int, number: int = 1) -> bytes:
    return struct.pack(">IIBB", size, number, 1, 0) + bytes(size)


INTERLEAVED = b"".join(
    [
        frame(1, wire(0, 1)),
        frame(7, b"whatever"),
        frame(1, wire(5000, 3)[:4096]),
        frame(2, wire(20, 1)[:15]),
        frame(1, b""),
        frame(1, wire(5000, 3)[4096:]),
        frame(2, wire(20, 1)[15:]),
        frame(0, wire(7)),
        frame(1, wire(3, 5) + wire(4, 7) + wire(6, 9)[:3]),
        frame(0xFFFFFFFF, b"x"),
        frame(1, wire(6, 9)[3:]),
    ]
)


@pytest.mark.parametrize("cut", [1, 2, 3, 7, 8, 9, 10, 4096, 1 << 16])
def test_data_in_pieces_of_any_size_is_assembled_equally(cut: int) -> None:
    found = [
        (channel, frame.stream, len(frame.data)) for channel, frame in assembled(INTERLEAVED, cut)
    ]
    assert found == [(1, 1, 0), (1, 3, 5000), (2, 1, 20), (1, 5, 3), (1, 7, 4), (1, 9, 6)]


def test_a_message_of_the_largest_size_is_accepted() -> None:
    data = wire(ttrpc.LONGEST)
    frames = frame(1, data[:4096]) + frame(1, data[4096:])
    ((_, received),) = assembled(frames, 1 << 18)
    assert len(received.data) == ttrpc.LONGEST


def test_a_message_in_one_frame_from_older_runtimes_is_accepted() -> None:
    ((_, received),) = assembled(frame(1, wire(ttrpc.LONGEST)), 1 << 18)
    assert len(received.data) == ttrpc.LONGEST


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (struct.pack(">II", 1, (16 << 20) + 11), "a frame of 16777227 bytes"),
        (struct.pack(">II", 9, 0xFFFFFFFF), "a frame of 4294967295 bytes"),
        (frame(1, struct.pack(">IIBB", (4 << 20) + 1, 1, 1, 0)), "a message of 4194305 bytes"),
    ],
)
def test_an_announced_size_above_the_limit_is_refused_immediately(data: bytes, text: str) -> None:
    with pytest.raises(ConnectionLostError, match=text):
        assembled(data, 1 << 16)


def test_random_messages_in_random_pieces_are_assembled() -> None:
    rng = random.Random(1)
    for _ in range(200):
        sizes = [rng.choice([0, 1, 10, 4086, 4087, 9000]) for _ in range(rng.randint(1, 6))]
        data = b"".join(wire(size, 2 * n + 1) for n, size in enumerate(sizes))
        framed, at = b"", 0
        while at < len(data):
            step = rng.choice([0, 1, 9, 10, 4096, 20_000])
            framed += frame(1, data[at : at + step])
            at += step
        found = [len(frame.data) for _, frame in assembled(framed, rng.randint(1, 5000))]
        assert found == sizes


def test_an_invalid_request_or_response_is_refused() -> None:
    with pytest.raises(ConnectionLostError, match="sent an invalid message of type Request"):
        ttrpc.decode("Request", b"\xff")
    with pytest.raises(ConnectionLostError, match="sent an invalid message of type Response"):
        ttrpc.decode("Response", b"\x0a\x05\x08")


@pytest.mark.parametrize("injecting", [False, True])
def test_the_events_that_the_plugin_subscribes_to(injecting: bool) -> None:
    events = mask(injecting=injecting)
    assert events == (0x065E if injecting else 0x0656)
    assert events & 0x2000 == 0, "validation would make every container depend on podgpu"
    assert events & ~0x07FF == 0, "older runtimes disconnect a plugin that sets an unknown bit"
    if not injecting:
        # Run, Create, Start, Update: an error there would prevent a container.
        assert events & (0x0001 | 0x0008 | 0x0020 | 0x0080 | 0x0800) == 0
