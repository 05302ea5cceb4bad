"""Check a file of claims: whether it exists, is readable, and has valid content."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from config.value_types import ByteSize
from pipeline.base.clock import Clock
from pipeline.component.claim_file_reader import FileClaims
from pipeline.component.findings import Check, Finding, span
from pipeline.files.bounded_read import AbsentError, UnreadableError, read_file
from pipeline.model import NS

_MAX_LISTED: Final = 2
_FUTURE_TOLERANCE: Final = 60.0
"""Seconds by which the modification time may be in the future, as on a file server."""


def check_file(
    check: Check,
    path: Path,
    max_size: ByteSize,
    read: Callable[[bytes], FileClaims],
    *,
    writer: str,
    clock: Clock,
    elsewhere: str = "",
) -> Finding:
    """Read a file as its source does, and return a finding about it. Blocking.

    Args:
        check: the check to which the finding belongs.
        path: the file.
        max_size: the size limit; a larger file is not read.
        read: parses the content into claims, or raises `UnreadableError`.
        writer: name of the program that writes the file, for people.
        clock: the clock with which the age of the file is calculated.
        elsewhere: other paths that the file may have, for people.
    """
    try:
        content = read_file(path, max_size, None)
    except AbsentError:
        if path.parent.is_dir():
            observed = "the folder exists, but the file does not"
            fix = f"check that {writer} runs; if its file is elsewhere, set path to that file"
        else:
            observed = f"folder {path.parent} does not exist here: it is not mounted"
            fix = f"mount the folder {path.parent} from the host, or set path to the file"
        return check.failure(str(path), observed, fix + (elsewhere and f": {elsewhere}"))
    except UnreadableError as error:
        return check.failure(str(path), str(error), _fix_for(str(error), path, writer))
    try:
        listed = read(content.data or b"")
    except UnreadableError as error:
        fix = f"check what {writer} writes, and that path names its file"
        return check.failure(str(path), str(error), fix)
    if listed.problems:
        problems = "; ".join(listed.problems[:_MAX_LISTED])
        fix = f"fix what {writer} writes, or fix these entries in the file"
        return check.warning(str(path), f"some entries are ignored: {problems}", fix)
    age_s = (clock.now().wall_ns - content.stamp[0]) / NS
    holders = f"{len(listed.claims)} containers hold devices"
    if age_s < -_FUTURE_TOLERANCE:
        observed = f"{holders}; the file's modification time is {-age_s:.0f} s in the future"
        fix = f"check the clock of {writer} and the clock of this node"
        return check.warning(str(path), observed, fix)
    return check.ok(str(path), f"{holders}; written {span(max(age_s, 0))} ago")


def _fix_for(error: str, path: Path, writer: str) -> str:
    if "permission" in error:
        return (
            "run podgpu as root or with the capability DAC_OVERRIDE, or let podgpu's group read "
            "the file"
        )
    if "was replaced" in error:
        return (
            f"mount the folder {path.parent} instead of the file, or let {writer} change the file "
            "without replacing it"
        )
    if "larger than" in error:
        return "raise max_size, or check that this is the correct file"
    return "give the path of a file, and mount its folder"
