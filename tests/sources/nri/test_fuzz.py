"""Any data from a runtime is understood or ends the connection; no other error is raised."""

import random
import struct
import tracemalloc
from collections.abc import Iterator
from functools import partial

import pytest

from pipeline.component.accepted_annotations import AcceptedAnnotations
from sources.nri import container_table, mux
from sources.nri.container_table import MAX_CONTAINERS, ContainerTable
from sources.nri.koordinator_adjustment import koordinator_adjustment
from sources.nri.mux import ConnectionLostError
from sources.nri.options import Options
from sources.nri.plugin import Plugin
from tests.fakes.nri import wire
from tests.fakes.nri.connection import PLUGIN
from tests.fakes.nri.rules import HEADER
from tests.fakes.nri.runtime import EVENTS
from tests.sources.nri.plugin_connection import instant_at

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


def encoded(method: str, payload: bytes) -> bytes:
    return wire.message({1: PLUGIN, 2: method, 3: payload, 4: 2_000_000_000})


ENCODED = {call: encoded(*call) for call in CALLS}


def request(rng: random.Random) -> bytes:
    method, payload = call = rng.choice(CALLS)
    data = ENCODED[call]
    if rng.random() < 0.4:
        data = encoded(method, damage(rng, payload))
    if rng.random() < 0.2:
        data = damage(rng, data)
    message = HEADER.pack(len(data), rng.randrange(1 << 16), 1, 0) + data
    if rng.random() < 0.1:
        message = damage(rng, message)
    return message


def damage(rng: random.Random, data: bytes) -> bytes:
    """Change, remove or add some bytes at random offsets."""
    damaged = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randint(0, len(damaged))
        junk = rng.randbytes(rng.randint(0, 4))
        match rng.randrange(4):
            case 0:
                damaged[at : at + len(junk)] = junk
            case 1:
                damaged[at:at] = junk
            case 2:
                del damaged[at : at + rng.randint(0, 8)]
            case _ if at < len(damaged):
                damaged[at] ^= 1 << rng.randrange(8)
            case _:
                pass
    return bytes(damaged)


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
                yield damage(rng, data) if rng.random() < 0.05 else data


def feed_frames(rng: random.Random, count: int) -> tuple[int, int]:
    """Feed frames to a plugin, with a new one after an error; return responses and errors."""
    responses = errors = 0

    def send(channel: int, message: tuple[bytes, bytes]) -> None:
        nonlocal responses
        responses += 1
        header, body = message
        assert channel == mux.PLUGIN
        assert HEADER.unpack(header)[0] == len(body)
        assert len(body) < 4096

    def new_plugin() -> tuple[Plugin, ContainerTable]:
        table = ContainerTable(instant_at)
        inject = rng.choice([None, partial(koordinator_adjustment, AcceptedAnnotations())])
        return Plugin(Options(), table, send, inject), table

    plugin, table = new_plugin()
    for data in frames(rng, count):
        try:
            plugin.feed(data)
        except ConnectionLostError:
            errors += 1
            plugin, table = new_plugin()
        chance = rng.random()
        if chance < 0.02:
            table.take_changes()
        elif chance < 0.1:
            # After a frame header that announces megabytes, all further data would be its body.
            plugin, table = new_plugin()
    return responses, errors


@pytest.mark.slow
def test_a_hundred_thousand_random_frames_raise_no_other_error() -> None:
    responses, errors = feed_frames(random.Random(7), FRAMES)
    # Both numbers are high, so the frames are neither all valid nor all invalid.
    assert responses > FRAMES // 4
    assert errors > FRAMES // 50


@pytest.mark.slow
def test_memory_stays_limited_with_random_frames() -> None:
    feed_frames(random.Random(1), 1000)
    tracemalloc.start()
    try:
        feed_frames(random.Random(2), 5000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


@pytest.mark.slow
def test_memory_stays_limited_if_changes_are_never_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """If no one takes the changes, the connection is closed, and only names are kept."""
    limit = MAX_CONTAINERS // 10
    monkeypatch.setattr(container_table, "MAX_CONTAINERS", limit)
    table = ContainerTable(instant_at)
    plugin = Plugin(Options(), table, lambda *_: None)
    data = wire.message({1: PLUGIN, 2: "Synchronize"})
    plugin.feed(b"".join(mux.frames(1, HEADER.pack(len(data), 1, 1, 0), data)))
    table.take_changes()

    def send_events() -> None:
        for number in range(2 * limit):
            container = wire.container(f"p{number}", pid=7, env=[f"FILLER={'x' * 300}"])
            subject = wire.subject(wire.pod(f"p{number}", uid="u" * 500), container)
            data = wire.message({1: PLUGIN, 2: "PostStartContainer", 3: subject})
            header = HEADER.pack(len(data), 2 * number + 3, 1, 0)
            plugin.feed(b"".join(mux.frames(1, header, data)))

    tracemalloc.start()
    try:
        with pytest.raises(ConnectionLostError, match=f"more than {limit} changes of containers"):
            send_events()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20
