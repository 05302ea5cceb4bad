"""What can be set about a replay."""

from typing import Annotated, Final, Literal

import msgspec

from config.option_markers import AtLeast, AtMost, Doc

DEMO: Final = "builtin:demo"
"""Stands for the recording that is part of podgpu."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the source `replay`."""

    path: Annotated[
        str,
        msgspec.Meta(min_length=1),
        Doc(f'The recording, a file that "podgpu record" made; {DEMO} for the one in podgpu.'),
    ]
    speed: Annotated[
        float,
        AtLeast(0.01),
        AtMost(1000),
        Doc("How fast it plays; 2 takes half the time that was recorded."),
    ] = 1.0
    loop: Annotated[
        bool,
        Doc("Start anew at the end. Counters then go back to where they were at the start."),
    ] = False
    time: Annotated[
        Literal["current", "original"],
        Doc("Whether wall times are moved to now or stay as they were recorded."),
    ] = "current"
