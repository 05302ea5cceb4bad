"""How much memory the GPUs of a topology have: what a document tells beside it."""

from collections.abc import Mapping

from pipeline.model import Snapshot


def memory_of(snapshot: Snapshot) -> Mapping[str, int]:
    """Return the bytes of memory of each physical GPU, by uuid, as far as they are known."""
    layout = snapshot.layout
    return {
        series.attribution.device.uuid: int(reading.value)
        for series, reading in zip(layout.series, snapshot.readings, strict=True)
        if series.field == "memory_total_bytes" and series.attribution.device.mig is None
    }
