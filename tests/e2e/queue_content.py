"""Read the content of a queue folder, while or after a podgpu uses it."""

import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from config.value_types import ByteSize
from pipeline.delivery.contract import Totals
from pipeline.delivery.options import QueueOptions
from pipeline.delivery.queue.factory import open_queue
from pipeline.model import Instant
from tests.pipeline.delivery.queue.folder_reader import read_folder


@dataclass(frozen=True, slots=True)
class QueueContent:
    """The content of a queue.

    Attributes:
        totals: the queue's own counts of all points.
        points: number of queued points, counted from the records.
    """

    totals: Totals
    points: int


def kept(folder: Path) -> QueueContent:
    """Open a copy of a queue like a starting podgpu; the folder stays unchanged."""
    if not folder.exists():
        return QueueContent(Totals(), 0)
    with tempfile.TemporaryDirectory() as made:
        copy = Path(made) / "queue"
        shutil.copytree(folder, copy)
        read = read_folder(copy)
        options = QueueOptions(path=copy, max_size=ByteSize.parse("1GiB"))
        queue = open_queue(options, "otlp", lambda: Instant(time.monotonic_ns(), time.time_ns()))
        try:
            records = queue.take(1 << 40)
            points = sum(record.points for record in records)
            queue.release()
            state = queue.state()
        finally:
            queue.close()
    found = QueueContent(state.totals, points)
    assert found.totals == read.totals, (found, read)
    assert found.totals.queued == found.points, found
    return found
