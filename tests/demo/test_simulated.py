"""A short recording of the simulated node has its GPUs, their holders and users."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.demo.merge import merge, read_all
from tests.demo.play import moments
from tests.demo.simulated import ROOT

HOLDERS = {
    (0, "3g.40gb"): ["lab-0"],
    (0, "2g.20gb"): ["small-0"],
    (0, "1g.10gb"): [],
    (1, ""): ["eval-0", "finetune-0"],
    (2, ""): ["render-0"],
    (3, ""): [],
}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_recording_begins_with_holders_and_users(tmp_path: Path) -> None:
    path, output = tmp_path / "one.gz", tmp_path / "demo.gz"
    words = [sys.executable, "-m", "tests.demo.simulated", str(path), "--seconds", "6"]
    subprocess.run(words, cwd=ROOT, check=True, timeout=250)
    merge(read_all([path]), output, 60)
    snapshot = [moment.snapshot for moment in moments(output, 60)][-1]
    found = {}
    for one in snapshot.layout.attributions.values():
        mig = one.device.mig
        found[one.device.index, "" if mig is None else mig.profile] = one
        assert one.device.model.endswith(" (simulated)")
    for place, names in HOLDERS.items():
        assert [holder.subject.pod for holder in found[place].holders] == names, place
    assert found[2, ""].conflicting_pods == ("batch/encode-0",)
    assert snapshot.usage is not None
    users = [
        one.subject.pod
        for one in snapshot.usage.devices[found[2, ""].device.uuid].containers
        if one.memory_bytes
    ]
    assert users == ["encode-0", "render-0"]
