"""Which of a pod's annotations podgpu wrote: they are no word of anybody else's.

Beside what it writes stands a mark of exactly that. A value is podgpu's own only while it is the
one in the mark: what somebody changed since is somebody's.
"""

from collections.abc import Mapping
from typing import Any, Final

import orjson

MARK: Final = "podgpu.io/wrote"
"""The annotation's key. Its value is a JSON object: `{"nvidia.com/gpu":"GPU-a,GPU-b"}`."""


def own(annotations: Mapping[str, object]) -> Mapping[str, str]:
    """Return those annotations that podgpu wrote, as they stand there.

    Args:
        annotations: all of a pod's, values of any type. A mark that can't be read owns nothing.
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
        if isinstance(value, str) and key != MARK and annotations.get(key) == value
    }


def marked(before: Mapping[str, str], changes: Mapping[str, str]) -> str:
    """Return the mark's value after a change.

    Args:
        before: what is podgpu's own before it, see `own`.
        changes: what is written now.
    """
    return orjson.dumps({**before, **changes}, option=orjson.OPT_SORT_KEYS).decode()
