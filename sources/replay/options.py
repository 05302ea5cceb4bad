"""Options of the source `replay`."""

from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from config.option_markers import AtLeast, AtMost, Doc

DEMO: Final = "builtin:demo"
"""The value of `path` that selects the recording that is part of podgpu."""

_DEMO_FILE: Final = Path(__file__).with_name("demo.podgpu.gz")


def recording_path(path: str) -> Path:
    """Return the file that a value of `path` means."""
    return _DEMO_FILE if path == DEMO else Path(path)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the source `replay`."""

    path: Annotated[
        str,
        msgspec.Meta(min_length=1),
        Doc(f'The recording, a file from "podgpu record"; {DEMO} is the one included in podgpu.'),
    ]
    speed: Annotated[
        float,
        AtLeast(0.01),
        AtMost(1000),
        Doc("Speed of the replay; with 2 it takes half of the recorded time."),
    ] = 1.0
    loop: Annotated[
        bool,
        Doc("Start again at the end. Counters continue, as if the node did."),
    ] = False
    time: Annotated[
        Literal["current", "original"],
        Doc("Whether wall times are moved to now (current) or stay as recorded (original)."),
    ] = "current"
