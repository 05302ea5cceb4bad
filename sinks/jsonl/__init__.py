"""Writes one JSON object per device and round of readings, to a file or to standard output."""
