"""Which of a pod's annotations podgpu wrote: they are no word of anybody else's.

Beside what it writes stands a mark of exactly that. A value is podgpu's own only while it is the
one in the mark: what somebody changed since is somebody's. Whoever makes a pod can write a mark
too, so that it covers no more than podgpu could have written.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

MARK: Final = "podgpu.io/wrote"
"""The annotation's key. Its value is a JSON object: `{"nvidia.com/gpu":"GPU-a,GPU-b"}`."""

_DOMAIN: Final = re.compile(
    r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
)
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_RESERVED: Final = ("kubernetes.io", "k8s.io", "podgpu.io")
_UUIDS: Final = re.compile(r"[-A-Za-z0-9_./:]+(?:,[-A-Za-z0-9_./:]+)*")


def writable(key: str) -> bool:
    """Whether a resource's name can be an annotation's key, and is nobody's by convention."""
    domain, _, name = key.partition("/")
    reserved = any(domain == one or domain.endswith(f".{one}") for one in _RESERVED)
    well_formed = len(domain) <= 253 and _DOMAIN.fullmatch(domain) and _NAME.fullmatch(name)
    return bool(well_formed) and not reserved


def own_annotations(annotations: Mapping[str, object]) -> Mapping[str, str]:
    """Return those annotations that podgpu wrote, as they stand there.

    Args:
        annotations: all of a pod's, values of any type. A mark that can't be read owns nothing,
            and none owns what podgpu doesn't write: under a key that is no resource's name, or
            something else than uuids with commas.
    """
    told = annotations.get(MARK)
    if not isinstance(told, str):
        return {}
    try:
        made: Any = orjson.loads(told)
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(made, dict):
        return {}
    return {
        key: value
        for key, value in made.items()
        if isinstance(value, str)
        and annotations.get(key) == value
        and _UUIDS.fullmatch(value)
        and writable(key)
    }


def mark_value(before: Mapping[str, str], changes: Mapping[str, str]) -> str:
    """Return the mark's value after a change.

    Args:
        before: what is podgpu's own before it, see `own_annotations`.
        changes: what is written now.
    """
    return orjson.dumps({**before, **changes}, option=orjson.OPT_SORT_KEYS).decode()
