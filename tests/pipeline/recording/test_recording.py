"""The recording format: lossless, compact, readable after a kill, with clear errors."""

import gzip
import json
import random
import re
import signal
import subprocess
import sys
import textwrap
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.fields import FieldPlan
from pipeline.model import (
    ClockTicked,
    DevicesDiscovered,
    Envelope,
    Instant,
    Reading,
    SamplesTaken,
    SourceLost,
)
from pipeline.recording import (
    Header,
    RecordingError,
    RecordingReader,
    RecordingWriter,
    sample_codec,
)
from tests.pipeline.recording.strategies import envelopes, instants, texts
from tests.support.examples import examples
from tests.support.nodes import START, at, every_field, gpu, reading

HEADER = Header("0.1.0", "node-1", START)


def record(path: Path, recorded: Iterable[Envelope], header: Header = HEADER) -> Path:
    with RecordingWriter(path, header, overwrite=True) as writer:
        for envelope in recorded:
            writer.write(envelope)
    return path


def replayed(path: Path) -> list[Envelope]:
    with RecordingReader(path) as reader:
        return list(reader)


def sample(second: float, *of: Reading, seq: int = 1) -> Envelope:
    return Envelope("gpus", "nvml", seq, at(second), SamplesTaken(of))


def rounds(count: int) -> list[Envelope]:
    return [sample(n, reading(gpu(0), "power_watts", n / 7, when=at(n))) for n in range(count)]


def write_lines(path: Path, *lines: object) -> Path:
    """Write a recording with these lines, which need not be valid."""
    header = HEADER.encode()
    encoded = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    path.write_bytes(gzip.compress(header + b"".join(line + b"\n" for line in encoded)))
    return path


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recordings")


# -- reading returns what was written


@given(st.lists(envelopes, max_size=6))
@settings(deadline=None, max_examples=examples(50))
def test_every_event_is_read_as_it_was_written(folder: Path, recorded: list[Envelope]) -> None:
    found = replayed(record(folder / "all", recorded))
    assert found == recorded
    # 1 and 1.0 are equal, but not the same.
    assert repr(found) == repr(recorded)


@given(header=st.builds(Header, texts, texts, instants))
def test_the_header_is_read_as_it_was_written(folder: Path, header: Header) -> None:
    with RecordingReader(record(folder / "header", [], header)) as reader:
        assert reader.header == header
        assert list(reader) == []
        assert not reader.truncated


def test_a_recording_from_before_devices_had_facts_can_be_read(tmp_path: Path) -> None:
    bare = gpu(0)
    known = replace(bare, facts=(("serial", "165"), ("vbios_version", "96.00")))
    recorded = [Envelope("gpus", "nvml", n, at(n), DevicesDiscovered((known,))) for n in range(2)]
    text = gzip.decompress(record(tmp_path / "new", recorded).read_bytes()).decode()
    header, first, second, *rest = text.splitlines(keepends=True)
    old = re.sub(r',?"facts":\[\[.*?\]\]', "", first)
    assert old != first
    path = tmp_path / "old"
    path.write_bytes(gzip.compress("".join((header, old, second, *rest)).encode()))
    found = [envelope.event for envelope in replayed(path)]
    assert found == [DevicesDiscovered((bare,)), DevicesDiscovered((known,))]


def test_tables_are_reset_before_they_are_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample_codec, "TABLE_BYTES", 400)
    recorded = [
        sample(n, reading(gpu(n % 3), "xid_errors", n, attrs=(("xid", str(n % 7)),)))
        for n in range(60)
    ]
    path = record(tmp_path / "many", recorded)
    assert gzip.decompress(path.read_bytes()).count(b'"reset":true') > 5
    assert replayed(path) == recorded


def test_a_recording_with_tables_that_are_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = [sample(n, reading(f"GPU-{n}", "power_watts", n)) for n in range(60)]
    path = record(tmp_path / "many", recorded)
    monkeypatch.setattr(sample_codec, "TABLE_BYTES", 400)
    with pytest.raises(RecordingError, match="tables are too large"):
        replayed(path)


def test_clock_ticks_are_not_recorded(tmp_path: Path) -> None:
    tick = Envelope("clock", "clock", 2, at(1), ClockTicked())
    lost = Envelope("gpus", "nvml", 3, at(2), SourceLost("no driver"))
    assert replayed(record(tmp_path / "ticks", [tick, lost])) == [lost]


@pytest.mark.slow
def test_five_minutes_of_a_node_are_small(tmp_path: Path) -> None:
    cards = [gpu(index) for index in range(4)]
    chance, recorded = random.Random(1), []
    taken: list[Reading] = []
    for second in range(300):
        now = Instant(at(second).mono_ns + second * 7919, at(second).wall_ns + second * 104_729)
        taken = [
            one._replace(value=round(chance.gauss(500, 50), 3))
            if one.field.endswith(("watts", "percent", "mhz", "celsius"))
            else one
            for one in every_field(cards, now, FieldPlan())
        ]
        taken += [
            reading(card, "clock_throttle_active", 0, attrs=(("reason", str(n)),), when=now)
            for card in cards
            for n in range(25)
        ]
        recorded.append(replace(sample(second, *taken), at=now))
    assert len(taken) / len(cards) > 55
    path = record(tmp_path / "node", recorded)
    assert path.stat().st_size < 350_000
    assert replayed(path)[-1] == recorded[-1]


# -- a recorder that is killed


@pytest.mark.slow
def test_a_killed_recorder_leaves_what_it_recorded(tmp_path: Path) -> None:
    path = tmp_path / "killed.podgpu.gz"
    program = textwrap.dedent(f"""
        import sys, time
        from pathlib import Path
        from tests.pipeline.recording.test_recording import HEADER, rounds
        from pipeline.recording import RecordingWriter
        writer = RecordingWriter(Path({str(path)!r}), HEADER)
        for envelope in rounds(20):
            writer.write(envelope)
        print("recorded", flush=True)
        time.sleep(60)
    """)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as recorder:
        assert recorder.stdout is not None
        assert recorder.stdout.readline() == b"recorded\n"
        recorder.send_signal(signal.SIGKILL)
    with RecordingReader(path) as reader:
        assert list(reader) == rounds(20)
        assert reader.truncated


def test_a_clock_tick_flushes_the_last_events_to_the_file(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "quiet", HEADER) as writer:
        writer.write(sample(1, reading(gpu(0), "power_watts", 1)))
        late = sample(1.5, reading(gpu(0), "power_watts", 2))
        writer.write(late)
        assert len(replayed(writer.path)) == 1
        writer.write(Envelope("clock", "clock", 3, at(2.5), ClockTicked()))
        assert replayed(writer.path)[-1] == late


@pytest.mark.slow
def test_a_file_that_is_cut_anywhere_returns_the_events_before_the_cut(tmp_path: Path) -> None:
    recorded = rounds(30)
    content = record(tmp_path / "whole", recorded).read_bytes()
    cut, before = tmp_path / "cut", 0
    for size in range(len(content)):
        cut.write_bytes(content[:size])
        try:
            with RecordingReader(cut) as reader:
                found = list(reader)
                assert reader.truncated
        except RecordingError:
            found = []
        assert found == recorded[: len(found)]
        assert len(found) >= before
        before = len(found)
    assert before == len(recorded)


@cache
def _ten_rounds(folder: Path) -> bytes:
    return record(folder / "damaged", rounds(10)).read_bytes()


@given(st.data())
@settings(deadline=None, max_examples=examples(50))
def test_a_damaged_file_is_an_error_and_no_crash(folder: Path, data: st.DataObject) -> None:
    content = bytearray(_ten_rounds(folder))
    offset = data.draw(st.integers(0, len(content) - 1))
    content[offset] ^= data.draw(st.integers(1, 255))
    (folder / "damaged").write_bytes(content)
    with suppress(RecordingError):
        replayed(folder / "damaged")


def test_a_gzip_file_may_end_within_a_line(tmp_path: Path) -> None:
    path = record(tmp_path / "torn", rounds(3))
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-9]))
    with RecordingReader(path) as reader:
        assert list(reader) == rounds(2)
        assert reader.truncated


def test_several_gzip_members_and_padding_with_zeros_can_be_read(tmp_path: Path) -> None:
    text = gzip.decompress(record(tmp_path / "two", rounds(4)).read_bytes())
    half = text.index(b"\n") + 20
    (tmp_path / "two").write_bytes(
        gzip.compress(text[:half]) + gzip.compress(text[half:]) + bytes(100_000)
    )
    assert replayed(tmp_path / "two") == rounds(4)


# -- files that can't be read


def error_message(path: Path) -> str:
    with pytest.raises(RecordingError) as raised:
        replayed(path)
    assert str(path) in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 100,
        b"GPU 0: fine\n",
        HEADER.encode(),
        gzip.compress(b""),
        gzip.compress(bytes(20 << 20)),
    ],
    ids=["empty", "zeros", "text", "not compressed", "no content", "one long line"],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "other").write_bytes(content)
    assert "is not a podgpu recording" in error_message(tmp_path / "other")


@pytest.mark.parametrize("line", [b"{}", b"[1]", b'{"podgpu_recording":"1"}', b"1", b"nonsense"])
def test_other_first_lines_are_refused(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "other").write_bytes(gzip.compress(line + b"\n"))
    assert "line 1" in error_message(tmp_path / "other")


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    header = json.loads(HEADER.encode()) | {"podgpu_recording": 2}
    (tmp_path / "newer").write_bytes(gzip.compress(json.dumps(header).encode() + b"\n"))
    assert "newer podgpu" in error_message(tmp_path / "newer")


GOOD = {"source": "a", "kind": "nvml", "seq": 1, "at": [0, 0], "event": "SourceLost"}
LOST = GOOD | {"body": {"reason": "gone"}}


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense",
        b"[" * 100_000,
        b" " + b"[" * 100_000,
        b"\xff",
        [],
        GOOD,
        GOOD | {"body": {"reason": 1}},
        LOST | {"at": [0]},
        LOST | {"at": [0.5, 0]},
        LOST | {"seq": None},
        GOOD | {"event": "SamplesTaken", "body": {"groups": [[0, 0, [0, 0], None, 1, [1]]]}},
        GOOD | {"event": "SamplesTaken", "body": {"groups": [[-1, 0, [0, 0], None, 1, []]]}},
        GOOD
        | {
            "event": "SamplesTaken",
            "body": {
                "devices": ["a"],
                "columns": [[["f", []]]],
                "groups": [[0, 0, [0, 0], None, 1, [1, 2]]],
            },
        },
        GOOD
        | {
            "event": "SamplesTaken",
            "body": {
                "devices": ["a"],
                "columns": [[["f", []]]],
                "groups": [[0, 0, [0, 0], None, 1, ["?"]]],
            },
        },
    ],
)
def test_an_invalid_line_is_an_error_with_its_number_and_a_fix(
    tmp_path: Path, line: object
) -> None:
    encoded = error_message(write_lines(tmp_path / "bad", LOST, line, LOST))
    assert "line 3" in encoded
    assert "record it again" in encoded


@pytest.mark.slow
def test_a_line_that_is_too_long_is_refused_without_much_memory(tmp_path: Path) -> None:
    path = tmp_path / "bomb"
    compressor = zlib.compressobj(wbits=31)
    with path.open("wb") as file:
        file.write(compressor.compress(HEADER.encode()))
        for _ in range(64):  # a line has at most 16 MiB
            file.write(compressor.compress(b"x" * (1 << 20)))
        file.write(compressor.flush())
    assert path.stat().st_size < 1 << 20
    assert "line 2 is longer" in error_message(path)


def test_additions_of_a_newer_podgpu_are_ignored_and_unknown_events_are_counted(
    tmp_path: Path,
) -> None:
    more = LOST | {"colour": 1, "body": {"reason": "gone", "since": 3}}
    unknown = GOOD | {"event": "FanSpun", "body": {"rpm": 3000}}
    with RecordingReader(write_lines(tmp_path / "newer", more, unknown, unknown, LOST)) as reader:
        assert [envelope.event for envelope in reader] == [SourceLost("gone")] * 2
        assert reader.skipped == {"FanSpun": 2}


def test_counting_skipped_types_takes_little_memory(tmp_path: Path) -> None:
    lines = [GOOD | {"event": f"Event{n}", "body": {}} for n in range(100)]
    with RecordingReader(write_lines(tmp_path / "newer", *lines)) as reader:
        assert list(reader) == []
        assert len(reader.skipped) == 17
        assert reader.skipped["others"] == 84


# -- files that can't be written


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("dear")
    with pytest.raises(RecordingError, match="already exists"):
        RecordingWriter(tmp_path / "there", HEADER)
    assert (tmp_path / "there").read_text() == "dear"


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="cannot create"):
        RecordingWriter(tmp_path / "none" / "there", HEADER)


def test_a_full_disk_is_an_error() -> None:
    with pytest.raises(RecordingError, match="No space left"):
        RecordingWriter(Path("/dev/full"), HEADER, overwrite=True)
