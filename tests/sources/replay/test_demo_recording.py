"""The recording that `podgpu demo` plays: it shows busy, held GPUs from the first second."""

import pytest

from pipeline.join.join import Join
from pipeline.model import NS, Snapshot
from pipeline.recording import RecordingReader
from sources.replay.source import _DEMO_FILE


def snapshot_at(seconds: float) -> Snapshot:
    """Return what the join knows after so many seconds of the recording."""
    join = Join()
    with RecordingReader(_DEMO_FILE) as reader:
        for envelope in reader:
            if envelope.at.mono_ns - reader.header.started.mono_ns > seconds * NS:
                return join.snapshot(envelope.at)
            join.apply(envelope)
    raise AssertionError("the recording is shorter")


@pytest.mark.parametrize("seconds", [0.5, 1, 2, 3])
def test_each_gpu_is_busy_and_held_at_once(seconds: float) -> None:
    shown = snapshot_at(seconds)
    busy = {
        series.attribution.device.uuid: reading.value
        for series, reading in zip(shown.layout.series, shown.readings, strict=True)
        if series.field == "gpu_utilization_percent"
    }
    held = {uuid for uuid, one in shown.layout.attributions.items() if one.holders}
    assert len(held) == 4
    assert held == {uuid for uuid, value in busy.items() if value > 50}


def test_the_recording_is_small() -> None:
    assert _DEMO_FILE.stat().st_size < 400_000
