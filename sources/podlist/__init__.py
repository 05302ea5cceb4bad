"""The source `podlist`: reads which containers hold GPUs from koordinator's pod list file."""
