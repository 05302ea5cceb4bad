"""Small recordings, and what they become when they are merged."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pipeline.model import (
    Device,
    DevicesDiscovered,
    Envelope,
    Event,
    SamplesTaken,
    SourceAdded,
)
from pipeline.recording import Header, RecordingReader, RecordingWriter
from tests.demo.merge import merge, read_all
from tests.support.nodes import START, at, reading

REAL: Final = "GPU-8c25ea37-2909-6e62-b7bf-e2fcadebea8d"


MIG: Final = "MIG-a5fa6120-f6fa-51b6-9820-a42112640629"


UID: Final = "67711498-0b76-435e-8929-2ec772bd35ac"


CONTAINER: Final = "ab" * 32


CLUSTER: Final = "0fc3eda5-e98b-a25b-5b0d-cf5c855d1448"


Recorded = Sequence[tuple[float, str, str, Event]]


def uuid(index: int) -> str:
    """Return the uuid of a GPU of a merged recording."""
    return f"GPU-{index:08x}-5eed-4a5e-9c0d-10{index:010d}"


def gpu(index: int = 0, uuid: str = REAL) -> Device:
    return Device(
        uuid,
        index,
        index,
        f"00000000:{0x3B + index:02X}:00.0",
        "NVIDIA H200",
        "580",
        facts=(("serial", f"16540{index}"),),
    )


def watts(second: float, value: float = 100, device: str = REAL) -> SamplesTaken:
    return SamplesTaken((reading(device, "power_watts", value, when=at(second - 0.01)),))


def recording(path: Path, events: Recorded) -> Path:
    header = Header("0.1.0", "gpu-7", START)
    with RecordingWriter(path, header) as writer:
        for second, source, kind, event in events:
            writer.write(Envelope(source, kind, 1, at(second), event))
    return path


def gpus(*events: tuple[float, Event], device: Device | None = None) -> Recorded:
    """Return events of a source nvml with one GPU, and the further events."""
    first: list[tuple[float, Event]] = [
        (0.2, SourceAdded(0, ("devices",))),
        (0.4, DevicesDiscovered((device or gpu(),))),
        (0.5, watts(0.5)),
    ]
    return [(second, "gpus", "nvml", event) for second, event in (*first, *events)]


def merged(
    tmp_path: Path, *inputs: Recorded, seconds: float = 60
) -> tuple[Header, Sequence[Envelope]]:
    paths = [recording(tmp_path / f"{number}.gz", events) for number, events in enumerate(inputs)]
    output = tmp_path / "merged.gz"
    merge(read_all(paths), output, seconds)
    with RecordingReader(output) as reader:
        return reader.header, tuple(reader)


def of(envelopes: Sequence[Envelope], kind: type[Event]) -> list[Event]:
    return [one.event for one in envelopes if isinstance(one.event, kind)]
