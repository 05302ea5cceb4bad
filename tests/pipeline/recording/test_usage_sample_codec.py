"""Usage samples in a recording: nothing is lost, and they are small."""

import gzip
import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.model import DeviceUse, Envelope, PartialRef, ProcessesSampled, ProcessUse
from pipeline.recording import RecordingError, sample_codec
from tests.pipeline.recording.strategies import device_uses, instants
from tests.pipeline.recording.test_recording import (
    GOOD,
    LOST,
    error_message,
    record,
    replayed,
    write_lines,
)
from tests.pipeline.usage.samples import S
from tests.support.examples import examples
from tests.support.nodes import at, uuid_of


def owner(number: int) -> PartialRef:
    return PartialRef(
        uid=f"{number:08x}-5eed-4a5e-9c0d-000000000000", container_id=f"{number:064x}"
    )


def sample_event(
    second: int, processes: int, chance: Random | None = None, churn: int = 0
) -> Envelope:
    chance = chance or Random(second)
    found = tuple(
        ProcessUse(pid, 7 * pid, owner(pid), "compute", pid << 20, chance.randint(0, S))
        for pid in range(churn, churn + processes)
    )
    each = [found[at::8] for at in range(8)]
    event = ProcessesSampled(
        tuple(
            DeviceUse(
                uuid_of(index),
                at(second - 0.01),
                at(second - 5.01),
                mine,
                80 << 30,
                1 << 29,
                sum(one.busy_ns or 0 for one in mine),
                second * 300_000 + chance.randint(0, 9999),
                15 * S,
                bool(index),
            )
            for index, mine in enumerate(each)
        )
    )
    return Envelope("gpus", "nvml", second, at(second), event)


@given(st.lists(st.lists(device_uses, max_size=3).map(tuple), max_size=4), instants)
@settings(deadline=None, max_examples=examples(50))
def test_every_usage_sample_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, samples: list[tuple[DeviceUse, ...]], when: object
) -> None:
    path = tmp_path_factory.getbasetemp() / "samples"
    envelopes = [Envelope("gpus", "nvml", 1, when, ProcessesSampled(each)) for each in samples]  # type: ignore[arg-type]
    assert replayed(record(path, envelopes)) == envelopes


@pytest.mark.slow
def test_five_minutes_of_two_hundred_processes_are_small(tmp_path: Path) -> None:
    envelopes = [sample_event(second, 200) for second in range(5, 305, 5)]
    path = record(tmp_path / "node", envelopes)
    assert path.stat().st_size < 120_000
    assert replayed(path) == envelopes


def test_tables_are_reset_before_they_are_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    envelopes = [sample_event(n, 8, churn=3 * n) for n in range(5, 60)]
    monkeypatch.setattr(sample_codec, "TABLE_BYTES", 4000)
    path = record(tmp_path / "many", envelopes)
    assert gzip.decompress(path.read_bytes()).count(b'"reset":true') > 5
    assert replayed(path) == envelopes
    monkeypatch.setattr(sample_codec, "TABLE_BYTES", 100)
    with pytest.raises(RecordingError, match="tables are too large"):
        replayed(path)


USES = GOOD | {"event": "ProcessesSampled"}
SAMPLE = [0, [0, 0], None, None, None, None, None, 1, True]


@pytest.mark.parametrize(
    "body",
    [
        None,
        {"found": [[*SAMPLE, []]]},
        {"devices": ["GPU-0"], "found": [[*SAMPLE, [[0, 1, 2]]]]},
        {"devices": ["GPU-0"], "found": [[-1, *SAMPLE[1:], []]]},
        {"devices": ["GPU-0"], "found": [[0, [0], *SAMPLE[2:], []]]},
        {"devices": ["GPU-0"], "found": [[*SAMPLE[:8], 1, []]]},
        {"devices": ["GPU-0"], "processes": [[1, 1, ["", ""], "compute"]]},
        {"devices": ["GPU-0"], "processes": [[1, 1, None, "cuda"]]},
    ],
)
def test_an_invalid_line_is_an_error_with_its_number(tmp_path: Path, body: object) -> None:
    assert "line 3" in error_message(
        write_lines(tmp_path / "bad", LOST, USES | {"body": body}, LOST)
    )


def test_additions_of_a_newer_podgpu_are_ignored(tmp_path: Path) -> None:
    body = {"devices": ["GPU-0"], "colour": 1, "found": [[*SAMPLE, [], "more"]]}
    [envelope] = replayed(
        write_lines(tmp_path / "newer", USES | {"body": json.loads(json.dumps(body))})
    )
    assert envelope.event == ProcessesSampled(
        (DeviceUse("GPU-0", envelope.at, None, (), None, None, None, None, 1, listed=True),)
    )
