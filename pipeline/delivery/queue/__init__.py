"""Queues for delivery: in memory, on the disk, and on the disk with memory behind it."""
