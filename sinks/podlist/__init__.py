"""The sink `podlist`: write which containers hold GPUs to koordinator's pod list file."""
