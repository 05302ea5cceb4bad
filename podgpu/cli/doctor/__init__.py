"""`podgpu doctor`: what is wrong on this node, or in a cluster, and what mends it."""

from typing import Final

BEHIND: Final = "dcgm-exporter"
"""The word behind which options are dcgm-exporter's."""
