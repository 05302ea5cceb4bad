"""Nodes whose labels show that they have GPUs."""

from tests.podgpu.doctor.cluster.objects import PRESENT, Raw, node


def labelled(
    gpus: int | None, allocatable: int | None = None, more: dict[str, str] | None = None
) -> Raw:
    made = node("gpu-1", gpus, allocatable=allocatable)
    made["metadata"]["labels"] = {PRESENT: "true", **(more or {})}
    return made
