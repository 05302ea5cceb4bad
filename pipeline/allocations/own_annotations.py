"""Annotations of a pod that podgpu wrote, which must not be read as a scheduler's claims.

podgpu writes a mark (`podgpu.io/wrote`) that repeats exactly the values that it has written. A
value is podgpu's only as long as it equals the value in the mark; if a user changes the value, it
is the user's. A user who creates a pod can also write a mark, so the mark is valid only for what
podgpu could have written.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

MARK: Final = "podgpu.io/wrote"
"""Key of the mark. Its value is a JSON object: `{"nvidia.com/gpu":"GPU-a,GPU-b"}`."""

_DOMAIN: Final = re.compile(
    r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
)
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_RESERVED: Final = ("kubernetes.io", "k8s.io", "podgpu.io")
_UUIDS: Final = re.compile(r"[-A-Za-z0-9_./:]+(?:,[-A-Za-z0-9_./:]+)*")


def writable(key: str) -> bool:
    """Whether a resource's name can be the key of an annotation and is not in a reserved domain."""
    domain, _, name = key.partition("/")
    reserved = any(domain == one or domain.endswith(f".{one}") for one in _RESERVED)
    well_formed = len(domain) <= 253 and _DOMAIN.fullmatch(domain) and _NAME.fullmatch(name)
    return bool(well_formed) and not reserved


def own_annotations(annotations: Mapping[str, object]) -> Mapping[str, str]:
    """Return the annotations that podgpu wrote, with their present values.

    Args:
        annotations: all annotations of a pod, with values of any type. An unreadable mark is
            ignored. An entry of the mark is ignored if podgpu does not write such annotations: the
            key is not the name of a resource, or the value is not uuids separated by commas.
    """
    mark = annotations.get(MARK)
    if not isinstance(mark, str):
        return {}
    try:
        marked: Any = orjson.loads(mark)
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(marked, dict):
        return {}
    return {
        key: value
        for key, value in marked.items()
        if isinstance(value, str)
        and annotations.get(key) == value
        and _UUIDS.fullmatch(value)
        and writable(key)
    }


def mark_value(before: Mapping[str, str], changes: Mapping[str, str]) -> str:
    """Return the value of the mark after a change.

    Args:
        before: podgpu's annotations before the change, from `own_annotations`.
        changes: the annotations that are written now.
    """
    return orjson.dumps({**before, **changes}, option=orjson.OPT_SORT_KEYS).decode()
