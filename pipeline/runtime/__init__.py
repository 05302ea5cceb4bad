"""Runs podgpu: starts, reloads, supervises and stops sources, the join and sinks."""
