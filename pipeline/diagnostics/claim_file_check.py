"""Files that say who holds what: whether they are there, readable, and what they should be."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from config.value_types import ByteSize
from pipeline.base.clock import Clock
from pipeline.component.check import Check
from pipeline.component.claim_file_reader import FileClaims
from pipeline.component.findings import Finding, span
from pipeline.files import AbsentError, Content, UnreadableError, read_file
from pipeline.model import NS

_MAX_LISTED: Final = 2
_AHEAD: Final = 60.0
"""Seconds: what a file's time may be ahead of the clock, as on a file server."""


class FileOptions(Protocol):
    """What the options of such a source have in common."""

    @property
    def path(self) -> Path:
        """The file."""
        ...

    @property
    def max_size(self) -> ByteSize:
        """A larger file is not read."""
        ...


def check_file(
    check: Check,
    options: FileOptions,
    read: Callable[[bytes], FileClaims],
    *,
    writer: str,
    clock: Clock,
    elsewhere: str = "",
) -> tuple[Finding, Content | None]:
    """Read a file as its source does. Blocking.

    Args:
        check: whose finding it is.
        options: which file.
        read: makes claims of its content, or raises `UnreadableError`.
        writer: who writes it, for people.
        clock: tells how old it is.
        elsewhere: where else it may be, for people.

    Returns:
        The finding, and the content where there is one.
    """
    path = options.path
    try:
        content = read_file(path, options.max_size, None)
    except AbsentError:
        saw, mend = _absent(path, writer)
        return check.failure(str(path), saw, mend + (elsewhere and f": {elsewhere}")), None
    except UnreadableError as error:
        return check.failure(str(path), str(error), _fix_for(str(error), path, writer)), None
    try:
        listed = read(content.data or b"")
    except UnreadableError as error:
        mend = f"see what {writer} writes, and whether path is that file's"
        return check.failure(str(path), str(error), mend), content
    if listed.problems:
        told = "; ".join(listed.problems[:_MAX_LISTED])
        mend = f"mend the entries, or {writer} that writes them"
        return check.warning(str(path), f"entries are left out: {told}", mend), content
    age_s = (clock.now().wall_ns - content.stamp[0]) / NS
    held = f"{len(listed.claims)} containers hold devices"
    if age_s < -_AHEAD:
        saw = f"{held}; was written {-age_s:.0f} s from now, by a clock that is ahead"
        mend = f"see the clock of {writer} and that of this node"
        return check.warning(str(path), saw, mend), content
    return check.ok(str(path), f"{held}; written {span(max(age_s, 0))} ago"), content


def _absent(path: Path, writer: str) -> tuple[str, str]:
    if path.parent.is_dir():
        saw = "the folder is here, and no such file in it"
        return saw, f"see that {writer} runs, and set path where its file is another one"
    saw = f"there is no folder {path.parent}: it is not mounted"
    return saw, f"mount the folder {path.parent} from the host, or set path to where it is"


def _fix_for(error: str, path: Path, writer: str) -> str:
    if "permission" in error:
        return "run podgpu as root or with the capability DAC_OVERRIDE, or let its group read it"
    if "replaced outside" in error:
        return f"mount the folder {path.parent} instead of the file, or let {writer} write in place"
    if "max_size" in error:
        return "raise max_size, or see whether it is the right file"
    return "give the path of a file, and mount its folder"
