"""Pattern of device uuids."""

import re
from typing import Final

UUID: Final = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z][0-9A-Za-z/-]{0,127}(?:::[0-9]{1,9})?")
"""Matches the uuid of a GPU or a MIG instance, also in the form of drivers before R470
(`MIG-GPU-<uuid>/1/0`), and a replica of it (`::5` or `/vgpu5` behind the uuid)."""
