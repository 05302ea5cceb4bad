"""The same events give the same accounts in every process, whatever the hashes of strings are."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.join import Join
from tests.pipeline.join.scenarios import Scenario
from tests.pipeline.join.test_usage_properties import Author
from tests.support.nodes import at

ROOT = Path(__file__).parents[3]
EVENT_SERIES = 8
SCENARIOS = 2


def digest() -> str:
    """Return a digest of the accounts and attributions that random events result in.

    A few series of events are enough: without `sorted` in `Entrance`, nearly each of them differs.
    """
    found = hashlib.sha256()
    for seed in range(EVENT_SERIES):
        join = Join()
        for envelope in Author(seed).history(40):
            join.apply(envelope)
            snapshot = join.snapshot(envelope.at)
            usage = snapshot.usage
            used = None if usage is None else (dict(usage.devices), usage.ended)
            found.update(repr((used, snapshot.xids)).encode())
    for seed in range(SCENARIOS):
        scenario = Scenario(seed)
        wrong = scenario.play()
        snapshot = scenario.join.snapshot(at(scenario.now))
        used = (
            None if snapshot.usage is None else (dict(snapshot.usage.devices), snapshot.usage.ended)
        )
        found.update(repr((wrong, used, snapshot.layout.attributions)).encode())
    return found.hexdigest()


@pytest.mark.slow
def test_accounts_and_the_order_of_ended_holdings_do_not_depend_on_hashes() -> None:
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
        for seed in (1, 2)
    }
    assert len(found) == 1
