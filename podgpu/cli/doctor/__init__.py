"""`podgpu doctor`: check a node or a cluster for problems, and print how to fix them."""

from typing import Final

DCGM_COMMAND: Final = "dcgm-exporter"
"""The argument after which all options are those of dcgm-exporter."""
