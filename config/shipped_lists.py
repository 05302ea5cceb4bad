"""Where the counters lists of podgpu's package are."""

from pathlib import Path
from typing import Final

SHIPPED_LISTS: Final = Path(__file__).parent / "counters"
"""The folder of dcgm-exporter's three lists. The image has them in `/etc/dcgm-exporter` too."""
