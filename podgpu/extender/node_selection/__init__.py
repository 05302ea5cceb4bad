"""Calculates what a pod requests, which nodes it fits on, and how well. Pure: no I/O, no clock."""
