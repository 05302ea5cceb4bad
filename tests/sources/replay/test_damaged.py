"""R4: damaged bytes in a recording are reported as damage, and stop nothing else."""

import asyncio
import gzip
import logging
import random
import re
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import pytest

from config.loader import parse
from pipeline.base.errors import TransientError
from pipeline.base.telemetry import Meter, Telemetry
from pipeline.component.registry import OWN_FAMILIES, RegisteredKinds
from pipeline.exposition.options import PageOptions
from pipeline.exposition.renderer import PageRenderer
from pipeline.exposition.text_format import Format
from pipeline.fields import FieldPlan
from pipeline.join import Join
from pipeline.ledger.batch_writer import BatchWriter
from pipeline.ledger.change_tracker import LedgerAccumulator
from pipeline.ledger.writer_open import open_readwrite
from pipeline.model import (
    NS,
    AdvertisedResource,
    ContainersReplaced,
    ContainerStopped,
    DeviceAliasesReplaced,
    DevicesDiscovered,
    DeviceUse,
    Envelope,
    Event,
    Instant,
    PartialRef,
    Pod,
    PodContainer,
    PodDeleted,
    PodInfo,
    PodsReplaced,
    PodUpserted,
    ProcessesSampled,
    ProcessUse,
    RawDeviceId,
    ResourcesAdvertised,
    RunningContainer,
    SamplesTaken,
    SourceAdded,
    SourceLost,
    SourceRemoved,
    TotalsRestored,
    XidReport,
    XidsReported,
)
from pipeline.recording import Header, RecordingError, RecordingReader, RecordingWriter
from pipeline.runtime.runtime import Runtime
from sinks.jsonl.line_encoder import LineEncoder
from sinks.otlp.encoding.encoder import Encoder
from sources.replay.continuation import Continuation
from sources.replay.options import Options
from sources.replay.recording_pass import ReplayPass
from sources.replay.source import ReplaySource
from tests.e2e.processes import free_ports
from tests.podgpu.cli.topology_command import run
from tests.support.contexts import FakeSourceContext, LoopClock
from tests.support.http import Clients
from tests.support.nodes import START, at, claim, claims, gpu, mig, reading
from tests.support.topology import topology_read
from tests.support.usage import account, used

GPUS: Final = (gpu(0), gpu(1))
CONTAINER: Final = PartialRef("ml", "trainer", "main", "u1", "containerd://abc")
PLAN: Final = FieldPlan()
STEP: Final = 13
"""One of this many numbers is damaged."""
MEMBER: Final = 10
"""Bytes of the header of a gzip member."""

NUMBERS: Final = (
    b"-1",
    b"-400000000000000000",
    b"-9223372036854775808",
    b"18446744073709551615",
    b"123456789012345678901234567890",
    b"1e400",
    b"null",
)


def node_events() -> Iterator[tuple[str, Event]]:
    """Yield events of one node, at least one of each type."""
    names = ("gpus", "podlist", "pods", "nri")
    yield from ((name, SourceAdded(order, ())) for order, name in enumerate(names))
    busy = used("trainer", held=5 * NS, energy=5, memory=3, busy=NS)
    yield "usage", TotalsRestored((account(GPUS[0], busy, unheld=NS),))
    yield "gpus", DevicesDiscovered((*GPUS, mig(GPUS[1], 1, profile="3g.40gb")))
    yield "gpus", topology_read(*GPUS)
    yield "podlist", claims(claim("trainer", GPUS[0].uuid))
    yield "pods", PodsReplaced((), 300 * NS)
    info = PodInfo("u1", "ml", "trainer", "Running", labels=(("team", "a"),))
    container = PodContainer("main", "app", CONTAINER.container_id, at(0))
    yield "pods", PodUpserted(Pod(info, at(0), containers=(container,)))
    held = (claim("trainer", GPUS[0].uuid),)
    yield (
        "nri",
        ContainersReplaced((RunningContainer(CONTAINER, 77, "/kubepods", at(0), held),), NS),
    )
    uuid = RawDeviceId("uuid", GPUS[0].uuid)
    alias = RawDeviceId("uuid", "GPU-alias")
    yield "gpus", DeviceAliasesReplaced(((alias, GPUS[0].uuid),), ((uuid, at(1)),))
    yield "gpus", ResourcesAdvertised((AdvertisedResource("nvidia.com/gpu", (uuid,)),), NS)
    yield "gpus", XidsReported((XidReport(GPUS[0].uuid, "", 31, at(1), 77, "python", CONTAINER),))
    for second in (2, 3, 4):
        now = at(second)
        yield (
            "gpus",
            SamplesTaken(
                (
                    reading(GPUS[0], "power_watts", 100 + second, when=now),
                    reading(GPUS[1], "power_watts", 50, when=now),
                    reading(GPUS[0], "energy_joules_total", second * 10**6, when=now),
                    reading(GPUS[0], "xid_errors", 1, attrs=(("xid", "31"),), when=now),
                )
            ),
        )
        process = ProcessUse(77, 5, CONTAINER, "compute", 10**9, NS // 2)
        use = DeviceUse(
            GPUS[0].uuid, now, at(second - 1), (process,), 10**9, 0, NS // 2, 100_000, 3 * NS
        )
        yield "gpus", ProcessesSampled((use,))
    yield "podlist", claims()
    yield "nri", ContainerStopped(CONTAINER.container_id)
    yield "pods", PodDeleted("u1")
    yield "podlist", SourceLost("gone")
    yield "podlist", SourceRemoved()


def record(path: Path) -> bytes:
    """Write a recording and return its bytes."""
    kinds = {"gpus": "nvml", "usage": "ledger"}
    with RecordingWriter(path, Header("0.1.0", "node-9", START)) as writer:
        for number, (name, event) in enumerate(node_events()):
            writer.write(Envelope(name, kinds.get(name, name), number, at(1 + number / 10), event))
    return path.read_bytes()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    record(tmp_path / "node.podgpu.gz")
    return tmp_path / "node.podgpu.gz"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BatchWriter]:
    with closing(open_readwrite(tmp_path / "usage.db", "normal")) as connection:
        yield BatchWriter(connection)


def damage_byte(path: Path, data: bytes, offset: int, value: int) -> None:
    path.write_bytes(data[:offset] + bytes([value]) + data[offset + 1 :])


def names_file(message: str, path: Path) -> bool:
    """Return whether a message names the file, in one line."""
    return message.startswith(str(path)) and "\n" not in message


def test_r4_a_damaged_byte_is_reported_in_one_line_or_does_no_harm(path: Path) -> None:
    intact, errors = path.read_bytes(), 0
    for offset in (
        *range(MEMBER + 54),
        *range(64, len(intact), 7),
        *range(len(intact) - 8, len(intact)),
    ):
        for mask in (0xFF, 0x80, 0x01) if offset < MEMBER else (0x10,):
            damage_byte(path, intact, offset, intact[offset] ^ mask)
            error = ""
            try:
                with RecordingReader(path) as reader:
                    list(reader)
            except RecordingError as found:
                error = str(found)
            assert not error or names_file(error, path)
            errors += bool(error)
    assert errors > 100


def damaged_texts(text: bytes, step: int) -> Iterator[bytes]:
    """Yield the text of a recording with damage: to each byte of its header, and to some others."""
    header = text.index(b"\n") + 1
    for count, offset in enumerate((*range(header), *range(header, len(text), 10 * step))):
        value = (text[offset] ^ 0x80, text[offset] ^ 0x02, ord("9"), ord('"'))[count % 4]
        yield text[:offset] + bytes([value]) + text[offset + 1 :]
    numbers = [one.span() for one in re.finditer(rb"-?\b\d+", text)]
    for count, (start, end) in enumerate(numbers[::step]):
        yield text[:start] + NUMBERS[count % len(NUMBERS)] + text[end:]


class SinkEncoders:
    """Give a recording to the encoders of all sinks while it is played."""

    def __init__(self) -> None:
        meter = Meter(Telemetry(families=OWN_FAMILIES), "sink", "page")
        self._join = Join()
        self._page = PageRenderer(PageOptions(), PLAN, "node-1", meter)
        self._sent = Encoder("node-1", PLAN)
        self._lines = LineEncoder("node-1", PLAN)
        self._accumulator = LedgerAccumulator(at(0), {})

    def commit(self, store: BatchWriter) -> None:
        store.write_batch(self._accumulator.take_batch())

    def take(self, envelope: Envelope) -> None:
        self._join.apply(envelope)
        snapshot = self._join.snapshot(envelope.at)
        self._page.show(snapshot)
        for form in Format:
            self._page.body(form)
        self._sent.encode(snapshot)
        self._lines.devices(snapshot)
        self._accumulator.add_snapshot(snapshot)


@pytest.mark.slow
def test_r4_any_value_in_a_damaged_line_stops_nothing(path: Path, store: BatchWriter) -> None:
    """A damaged line that can still be parsed may contain any value."""
    read = errors = 0
    for count, text in enumerate(damaged_texts(gzip.decompress(path.read_bytes()), STEP)):
        path.write_bytes(gzip.compress(text, 1))
        start = Instant(10**12, START.wall_ns + 10**17)
        original = count % 2 == 1
        playing = ReplayPass(path, start, 1.0, Continuation(), original=original)
        encoders = SinkEncoders()
        try:
            for data in (path.read_bytes(), b""):
                events = playing.events(data)
                while batch := playing.take(events):
                    for envelope in batch:
                        encoders.take(envelope)
                        read += 1
        except RecordingError as error:
            errors += names_file(str(error), path)
        encoders.commit(store)
    assert read > 1000
    assert errors > 50


# Damage while a recording is played, and next to a valid recording.


_long_recording = b""


def write_long_recording(path: Path) -> Path:
    """Write a recording with more bytes than are read at a time; encoded once for all tests."""
    global _long_recording
    if _long_recording:
        path.write_bytes(_long_recording)
        return path
    chance = random.Random(1)
    with RecordingWriter(path, Header("0.1.0", "node-9", START)) as writer:
        writer.write(Envelope("late", "nvml", 1, at(0.1), DevicesDiscovered((gpu(7),))))
        for number in range(2, 6000):
            now = at(number / 100)
            watts = reading(gpu(7), "power_watts", chance.random(), when=now)
            writer.write(Envelope("late", "nvml", number, now, SamplesTaken((watts,))))
    _long_recording = path.read_bytes()
    assert len(_long_recording) > 80_000
    return path


def damage_end(path: Path) -> None:
    """Damage the end of a file in place."""
    data = bytearray(path.read_bytes())
    for offset in range(len(data) * 3 // 4, len(data), 100):
        data[offset] ^= 0xFF
    with path.open("r+b") as file:
        file.write(data)


@pytest.mark.slow
@pytest.mark.looptime
async def test_r4_damage_during_the_replay_is_reported_when_it_is_reached(
    tmp_path: Path,
) -> None:
    path = write_long_recording(tmp_path / "long.podgpu.gz")
    ctx = FakeSourceContext("replay", LoopClock())
    playing = asyncio.create_task(ReplaySource(Options(path=str(path))).run(ctx))
    await asyncio.sleep(1)
    damage_end(path)
    with pytest.raises(TransientError) as caught:
        await playing
    assert names_file(str(caught.value), path)
    assert caught.value.retry_after == 60
    assert len(ctx.relayed) > 1000


@pytest.mark.slow
@pytest.mark.parametrize("what", ["header", "line", "late"])
async def test_r4_other_sources_continue_next_to_a_damaged_recording(
    what: str, path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = write_long_recording(tmp_path / "other.podgpu.gz")
    if what == "header":
        damage_byte(other, other.read_bytes(), 0, 0)
    elif what == "line":
        content = gzip.decompress(other.read_bytes()).replace(
            b'"SamplesTaken"', b'"SamplesTaken\0', 1
        )
        other.write_bytes(gzip.compress(content))
    else:
        damage_end(other)
    (port,) = free_ports(1)
    lines = ["http: {allowed_hosts: ['*']}", "sources:"]
    lines += [f"  sound: {{kind: replay, path: {path}, speed: 1000}}"]
    lines += [f"  bad: {{kind: replay, path: {other}, speed: 1000}}"]
    lines += ["sinks:", f"  p: {{kind: prometheus, listen: '127.0.0.1:{port}'}}"]
    text = "\n".join(lines)
    expected = 'podgpu_source_restarts_total{source="bad"} 1', GPUS[0].uuid
    stop = asyncio.Event()
    runtime = Runtime(parse(text, RegisteredKinds(), env={}, origin="podgpu.yaml"))
    running = asyncio.create_task(runtime.run(stop))
    try:
        async with asyncio.timeout(10), Clients() as clients:
            client, page = None, ""
            while not all(word in page for word in expected):
                await asyncio.sleep(0.02)
                assert not running.done()
                if client is None:
                    with suppress(OSError):
                        client = await clients.connect(port)
                else:
                    status, page = await client.get("/metrics")
                    assert status == 200
    finally:
        stop.set()
        await running
    warned = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    (line,) = (one for one in warned if str(other) in one)
    assert "\n" not in line


def test_r4_the_command_line_reports_damage_in_one_line(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    intact = path.read_bytes()
    for offset in range(0, len(intact), 97):
        damage_byte(path, intact, offset, intact[offset] ^ 0x40)
        status, out, err = run(capsys, "--recording", str(path))
        assert status in {0, 1, 2}
        assert "Traceback" not in out + err
        assert (err.count("\n") == 1 and str(path) in err) if status else not err
