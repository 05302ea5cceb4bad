"""The declaration of the source `slurm`."""

from typing import Final

from pipeline.component.kind import Kind

KIND: Final = Kind(
    summary="follows the jobs of Slurm on this node, and the GPUs that they were allocated",
    options="sources.slurm.options:Options",
    factory="sources.slurm.source:SlurmSource",
    doctor="sources.slurm.doctor:examine",
    timeout_fix="check that scontrol ping responds on this node",
    holders="all",
    resolves=frozenset({"owners"}),
)
