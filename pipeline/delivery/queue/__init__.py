"""Queues for delivery: in memory, on disk, and on disk with memory as fallback."""
