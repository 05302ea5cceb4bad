"""The same events make the same accounts in every process, whatever Python's hashes of texts."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from pipeline.join import Join
from tests.pipeline.join.stories import Story
from tests.pipeline.join.test_usage_properties import Author
from tests.support.nodes import at

ROOT = Path(__file__).parents[3]
STORIES = 8
OF_IDENTITY = 2


def digest() -> str:
    """Return what stands for all that some stories come to.

    Few stories do: with `sorted` left out of `Entrance`, nearly each of them differs by itself.
    """
    found = hashlib.sha256()
    for seed in range(STORIES):
        join = Join()
        for envelope in Author(seed).story(40):
            join.apply(envelope)
            given_out = join.snapshot(envelope.at)
            usage = given_out.usage
            used = None if usage is None else (dict(usage.devices), usage.ended)
            found.update(repr((used, given_out.xids)).encode())
    for seed in range(OF_IDENTITY):
        story = Story(seed)
        wrong = story.play()
        given_out = story.join.snapshot(at(story.now))
        used = (
            None
            if given_out.usage is None
            else (dict(given_out.usage.devices), given_out.usage.ended)
        )
        found.update(repr((wrong, used, given_out.layout.attributions)).encode())
    return found.hexdigest()


def test_accounts_and_the_order_of_ends_do_not_hang_on_hashes() -> None:
    command = f"from {__name__} import digest; print(digest())"
    found = {
        subprocess.run(
            [sys.executable, "-c", command],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in (1, 2, 3, 4)
    }
    assert len(found) == 1
