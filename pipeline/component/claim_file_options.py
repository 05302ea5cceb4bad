"""Options of sources that follow a file of claims."""

from pathlib import Path
from typing import Annotated

import msgspec

from config.option_markers import AtLeast, Doc
from config.value_types import ByteSize, Duration


class ClaimFileOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The file of claims, and how podgpu follows it; each source has a different default path."""

    path: Path
    max_age: Annotated[
        Duration,
        AtLeast("1s"),
        Doc("How long the last valid content stays in use while the file is missing or invalid."),
    ] = Duration.parse("5m")
    interval: Annotated[
        Duration,
        AtLeast("1s"),
        Doc(
            "Time between checks of the file, which confirm its claims. podgpu also reads the file "
            "when it changes."
        ),
    ] = Duration.parse("10s")
    max_size: Annotated[
        ByteSize, AtLeast("1KiB"), Doc("The size limit; a larger file is not read.")
    ] = ByteSize.parse("10MiB")
