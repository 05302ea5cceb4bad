"""A node with the devices of the demo: eight GPUs, one of them with MIG instances."""

from pathlib import Path

from pipeline.ledger.batch_writer import BatchWriter
from pipeline.ledger.writer_open import open_readwrite
from pipeline.model import Instant, PodInfo
from podgpu.cli.demo.recorded_node import RecordedNode
from podgpu.cli.demo.sample_usage import sample_batch
from tests.support.nodes import gpu, mig

NOW = Instant(5_000 * 10**9, 1_796_040_000_123_456_789)
"""Monday, 2026-11-30, 12:00 UTC; the machine has been up for less than the sample data covers."""

HELD_NS = 3_000 * 10**9
"""How long the pod of the recording has run."""

GPUS = tuple(gpu(index) for index in range(8))
INSTANCES = tuple(mig(GPUS[4], gi, profile="2g.20gb") for gi in (3, 5, 6))
TRAINING = PodInfo("u-train", "research", "llama-train-0", owner_kind="Job", owner_name="train")
NODE = RecordedNode(
    "demo",
    (*GPUS[:5], *INSTANCES, *GPUS[5:]),
    {("research", "llama-train-0"): TRAINING},
    {("research", "llama-train-0"): HELD_NS},
)


def written(path: Path) -> Path:
    """Write the sample data of the node to a new ledger."""
    connection = open_readwrite(path, "normal")
    BatchWriter(connection, "boot").write_batch(sample_batch(NODE, NOW))
    connection.close()
    return path
