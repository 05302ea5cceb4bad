"""Plays the story of a seed, and tells what differs from the reference."""

import tempfile
from pathlib import Path

from tests.accounting.comparing import compare
from tests.accounting.given_out import Story
from tests.accounting.playing import Player
from tests.accounting.stories import story

_MEMORY = Path("/dev/shm")


def check(seed: int) -> list[str]:
    """Return what differs, in words; nothing is right."""
    return check_story(story(seed))


def check_story(given_out: Story) -> list[str]:
    """Return what differs when a story is played."""
    place = _MEMORY if _MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=place) as folder:
        return compare(given_out, Player(given_out, Path(folder)).play())
