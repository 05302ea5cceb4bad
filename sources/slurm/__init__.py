"""The source `slurm`: the jobs of Slurm on this node, and the GPUs that they were allocated."""
