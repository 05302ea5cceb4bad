"""Which folders decide what a path leads to."""

import os
from collections.abc import Iterator
from stat import S_ISDIR, S_ISLNK, S_IWOTH

_MOST_LINKS = 40  # as the kernel


def foreign_link(path: str) -> str:
    """Return the first symbolic link on the way to a file that others may have put there.

    That is a link which belongs neither to root nor to this process, or which is in a folder that
    belongs to neither or that everybody may write. Empty where there is none. Who writes through
    such a link writes to a file of somebody else's choice.
    """
    trusted = (0, os.geteuid())
    for folder, name in links_of(path):
        here = os.path.join(folder, name)  # noqa: PTH118
        try:
            found = os.lstat(here)
            around = os.stat(folder)  # noqa: PTH116
        except OSError:
            return ""
        if S_ISLNK(found.st_mode) and (
            found.st_uid not in trusted or around.st_uid not in trusted or around.st_mode & S_IWOTH
        ):
            return here
    return ""


def links_of(path: str) -> Iterator[tuple[str, str]]:
    """Yield (folder, name) for each step from the root to the file, through symbolic links.

    If any of these names comes to mean something else, so may the path. Each pair is yielded
    before its name is looked up: a caller that watches the folder first misses no change. Ends
    early where a name doesn't exist or a folder can't be searched.
    """
    folder = "/"
    steps = _steps(os.path.join(os.getcwd(), path))  # noqa: PTH109, PTH118 - text, not Path: `..`
    followed = 0
    while steps:
        name = steps.pop()
        if name == "..":
            # `folder` went through no link, so that its parent is a matter of text.
            folder = os.path.dirname(folder)  # noqa: PTH120
            continue
        yield folder, name
        here = os.path.join(folder, name)  # noqa: PTH118
        try:
            mode = os.lstat(here).st_mode
            target = os.readlink(here) if S_ISLNK(mode) else ""  # noqa: PTH115
        except OSError:
            return
        if target:
            followed += 1
            if followed > _MOST_LINKS:
                return
            folder = "/" if target.startswith("/") else folder
            steps += _steps(target)
        elif S_ISDIR(mode):
            folder = here
        else:
            return


def _steps(path: str) -> list[str]:
    """Return the names of a path, the last one first."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]
