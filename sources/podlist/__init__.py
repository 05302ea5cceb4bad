"""The source `podlist`: read which containers hold GPUs from koordinator's pod list file."""
