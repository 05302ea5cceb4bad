"""Whatever comes in is understood or costs the connection; nothing escapes."""

import random
import struct
import tracemalloc
from collections.abc import Iterator
from functools import partial

import pytest

from pipeline.component.accepted_annotations import AcceptedAnnotations
from sources.nri import mux
from sources.nri.container_table import MAX_CONTAINERS, ContainerTable
from sources.nri.errors import ConnectionLostError
from sources.nri.koordinator_injection import koordinator_adjustment
from sources.nri.plugin import Identity, Plugin
from tests.fakes.nri import wire
from tests.fakes.nri.connection import PLUGIN
from tests.fakes.nri.rules import HEADER
from tests.fakes.nri.runtime import EVENTS
from tests.sources.nri.talking import moment

FRAMES = 100_000

POD = wire.pod(annotations={"scheduling.koordinator.sh/device-allocated": '{"gpu":[{"minor":1}]}'})
CONTAINER = wire.container(
    env=["NVIDIA_VISIBLE_DEVICES=GPU-8c25ea37-2909-6e62-b7bf-e2fcadebea8d,0"],
    mounts=["/var/run/nvidia-container-devices/GPU-8c25ea37"],
    devices=[wire.gpu_node(1), wire.node("/dev/null", 1, 3)],
    cdi=["nvidia.com/gpu=0"],
    annotations={"cdi.k8s.io/a": "nvidia.com/gpu=0,nvidia.com/gpu=1"},
    pid=5,
    created=1,
    started=2,
)
CALLS = [
    ("Configure", wire.message({2: "containerd", 3: "2.4.2", 4: 5000})),
    ("Synchronize", wire.message({1: [POD], 2: [CONTAINER], 3: 1})),
    ("Synchronize", wire.message({1: [POD], 2: [CONTAINER]})),
    ("Shutdown", b""),
    ("Reticulate", b"splines"),
    *((event, wire.subject(POD, CONTAINER)) for event in EVENTS),
    *(("StateChange", wire.message({1: n, 2: POD, 3: CONTAINER})) for n in (2, 5, 7, 10, 99)),
]


def request(rng: random.Random) -> bytes:
    method, payload = rng.choice(CALLS)
    if rng.random() < 0.4:
        payload = spoil(rng, payload)
    data = wire.message({1: PLUGIN, 2: method, 3: payload, 4: 2_000_000_000})
    if rng.random() < 0.2:
        data = spoil(rng, data)
    message = HEADER.pack(len(data), rng.randrange(1 << 16), 1, 0) + data
    if rng.random() < 0.1:
        message = spoil(rng, message)
    return message


def spoil(rng: random.Random, data: bytes) -> bytes:
    """Change, drop or add some bytes, at any place."""
    spoilt = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randint(0, len(spoilt))
        junk = rng.randbytes(rng.randint(0, 4))
        match rng.randrange(4):
            case 0:
                spoilt[at : at + len(junk)] = junk
            case 1:
                spoilt[at:at] = junk
            case 2:
                del spoilt[at : at + rng.randint(0, 8)]
            case _ if at < len(spoilt):
                spoilt[at] ^= 1 << rng.randrange(8)
            case _:
                pass
    return bytes(spoilt)


def frames(rng: random.Random, count: int) -> Iterator[bytes]:
    for _ in range(count):
        match rng.randrange(10):
            case 0:
                yield rng.randbytes(rng.randint(0, 60))
            case 1:
                junk = rng.randbytes(rng.randint(0, 60))
                yield struct.pack(">II", rng.choice([0, 1, 2, 3]), len(junk)) + junk
            case _:
                message = request(rng)
                cut = rng.choice([10, len(message), rng.randint(0, len(message))])
                channel = rng.choice([1, 1, 1, 2])
                parts = [message[:cut], message[cut:]]
                data = b"".join(struct.pack(">II", channel, len(one)) + one for one in parts)
                yield spoil(rng, data) if rng.random() < 0.05 else data


def survive(rng: random.Random, count: int) -> tuple[int, int]:
    """Feed frames to plugins; a lost connection has a successor. Return answers and losses."""
    answers = losses = 0

    def send(channel: int, message: tuple[bytes, bytes]) -> None:
        nonlocal answers
        answers += 1
        header, body = message
        assert channel == mux.PLUGIN
        assert HEADER.unpack(header)[0] == len(body)
        assert len(body) < 4096

    def fresh() -> tuple[Plugin, ContainerTable]:
        roster = ContainerTable(moment)
        inject = rng.choice([None, partial(koordinator_adjustment, AcceptedAnnotations())])
        return Plugin(Identity("podgpu", "90"), roster, send, inject), roster

    plugin, roster = fresh()
    for data in frames(rng, count):
        try:
            plugin.feed(data)
        except ConnectionLostError:
            losses += 1
            plugin, roster = fresh()
        chance = rng.random()
        if chance < 0.02:
            roster.take_changes()
        elif chance < 0.1:
            # A frame that announces megabytes has swallowed all that came after it.
            plugin, roster = fresh()
    return answers, losses


@pytest.mark.slow
def test_a_hundred_thousand_frames() -> None:
    answers, losses = survive(random.Random(7), FRAMES)
    # Both ends were reached often, so that the frames were neither all good nor all bad.
    assert answers > FRAMES // 4
    assert losses > FRAMES // 50


def test_memory_stays_bounded() -> None:
    survive(random.Random(1), 1000)
    tracemalloc.start()
    try:
        survive(random.Random(2), 5000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


@pytest.mark.slow
@pytest.mark.timeout(120)  # every allocation is traced
def test_what_is_reported_for_ever_stays_bounded() -> None:
    """Nobody takes it: the connection is closed, and nothing is kept but names."""
    roster = ContainerTable(moment)
    plugin = Plugin(Identity("podgpu", "90"), roster, lambda *_: None)
    data = wire.message({1: PLUGIN, 2: "Synchronize"})
    plugin.feed(b"".join(mux.frames(1, HEADER.pack(len(data), 1, 1, 0), data)))

    def tell() -> None:
        for number in range(2 * MAX_CONTAINERS):
            container = wire.container(f"p{number}", pid=7, env=[f"FILLER={'x' * 300}"])
            given_out = wire.subject(wire.pod(f"p{number}", uid="u" * 500), container)
            data = wire.message({1: PLUGIN, 2: "PostStartContainer", 3: given_out})
            header = HEADER.pack(len(data), 2 * number + 3, 1, 0)
            plugin.feed(b"".join(mux.frames(1, header, data)))

    tracemalloc.start()
    try:
        with pytest.raises(ConnectionLostError, match=f"{MAX_CONTAINERS} pending changes"):
            tell()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 40 << 20
