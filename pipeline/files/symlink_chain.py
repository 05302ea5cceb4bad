"""The folders and symbolic links that a path leads through."""

import os
from collections.abc import Iterator
from stat import S_ISDIR, S_ISLNK, S_IWOTH

_MAX_LINKS = 40  # as the kernel


def untrusted_link(path: str) -> str:
    """Return the first symbolic link on a path that another user may have made; empty if none.

    Such a link belongs neither to root nor to this process's user, or it is in a folder that
    belongs to neither or that everyone may write. A program that writes through the link writes to
    a file that another user chose.
    """
    trusted = (0, os.geteuid())
    for folder, name in links_of(path):
        link_path = os.path.join(folder, name)  # noqa: PTH118
        try:
            link = os.lstat(link_path)
            parent = os.stat(folder)  # noqa: PTH116
        except OSError:
            return ""
        if S_ISLNK(link.st_mode) and (
            link.st_uid not in trusted or parent.st_uid not in trusted or parent.st_mode & S_IWOTH
        ):
            return link_path
    return ""


def links_of(path: str) -> Iterator[tuple[str, str]]:
    """Yield (folder, name) for each step from the root to the file, through symbolic links.

    A change of one of these names may change the file that the path leads to. Each pair is yielded
    before its name is looked up, so that a caller that watches the folder first misses no change.
    The iteration ends early if a name does not exist or a folder cannot be searched.
    """
    folder = "/"
    steps = _steps(os.path.join(os.getcwd(), path))  # noqa: PTH109, PTH118 - text, not Path: `..`
    followed = 0
    while steps:
        name = steps.pop()
        if name == "..":
            # `folder` contains no symbolic link, so that its parent is known from the text.
            folder = os.path.dirname(folder)  # noqa: PTH120
            continue
        yield folder, name
        link_path = os.path.join(folder, name)  # noqa: PTH118
        try:
            mode = os.lstat(link_path).st_mode
            target = os.readlink(link_path) if S_ISLNK(mode) else ""  # noqa: PTH115
        except OSError:
            return
        if target:
            followed += 1
            if followed > _MAX_LINKS:
                return
            folder = "/" if target.startswith("/") else folder
            steps += _steps(target)
        elif S_ISDIR(mode):
            folder = link_path
        else:
            return


def _steps(path: str) -> list[str]:
    """Return the names of a path, last name first."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]
