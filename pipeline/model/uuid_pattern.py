"""How uuids of devices are written."""

import re
from typing import Final

UUID: Final = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z][0-9A-Za-z/-]{0,127}(?:::[0-9]{1,9})?")
"""A GPU or a MIG instance, as the driver or one before R470 writes it (`MIG-GPU-<uuid>/1/0`); or a
replica that a device plugin made of it to share it (`::5` or `/vgpu5` behind the uuid)."""
