"""The names that the label of a pod can have as the label of a series."""

import re
from collections.abc import Sequence
from typing import Final

_INVALID: Final = re.compile(r"[^a-zA-Z0-9_]")


def label_names(key: str) -> Sequence[str]:
    """Return the names for a pod's label: with podgpu's default prefix, and without a prefix.

    They are those of the option `pod_label_prefix` of the sink `prometheus`.
    """
    name = _INVALID.sub("_", key)
    return f"label_{name}", f"pod_label_{name}" if name[0].isdigit() else name
