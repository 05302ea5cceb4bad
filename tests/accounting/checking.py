"""Play the story of a seed, and report differences from the reference."""

import tempfile
from pathlib import Path

from tests.accounting.actions import Story
from tests.accounting.comparison import compare
from tests.accounting.player import Player
from tests.accounting.stories import generate_story

_MEMORY = Path("/dev/shm")


def check(seed: int) -> list[str]:
    """Return the differences as text; an empty list if there are none."""
    return check_story(generate_story(seed))


def check_story(story: Story) -> list[str]:
    """Play a story and return its differences."""
    parent = _MEMORY if _MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        return compare(story, Player(story, Path(folder)).play())
