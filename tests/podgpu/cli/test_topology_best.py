"""`podgpu topology best` if there are too few free GPUs, or with invalid options."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.podgpu.cli.test_topology import EVENTS, recording
from tests.podgpu.cli.topology_command import run
from tests.support.nodes import claim, claims, uuid_of

NOTE = "This is a recording, not this machine.\n"


def test_too_few_free_gpus_end_with_status_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = recording(tmp_path / "recording.gz")
    status, out, err = run(capsys, "--recording", str(file), "best", "-n", "8")
    assert (status, out) == (3, "")
    assert err == (
        "GPUs requested: 8; GPUs to choose from: 6; "
        "held: GPU 0 by ml/train-0 (main), GPU 1 in part by ml/serve-a (main) 0.5\n" + NOTE
    )


@pytest.mark.parametrize(
    ("pods", "why"),
    [
        ([("train-0", range(8))], "all 8 GPUs are held: GPU 0-7 by ml/train-0 (main)"),
        (
            [("a", range(4)), ("b", range(4, 8))],
            "all 8 GPUs are held: GPU 0-3 by ml/a (main), GPU 4-7 by ml/b (main)",
        ),
        # More than four pods: the first four are named.
        (
            [(f"p-{index}", [index]) for index in range(8)],
            "all 8 GPUs are held: "
            + "".join(f"GPU {index} by ml/p-{index} (main), " for index in range(4))
            + "GPU 4-7 by others",
        ),
    ],
)
def test_if_no_gpu_is_free_the_holders_are_named(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    pods: list[tuple[str, Sequence[int]]],
    why: str,
) -> None:
    held = claims(*(claim(pod, *map(uuid_of, gpus)) for pod, gpus in pods))
    file = recording(tmp_path / "recording.gz", [*EVENTS[:4], ("podlist", held)])
    status, out, err = run(capsys, "--recording", str(file), "best", "-n", "1")
    assert (status, out, err) == (3, "", f"GPUs requested: 1; {why}\n{NOTE}")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("-n", "x"), "give the number of GPUs to choose"),
        (("-n", "9"), "this node has only 8 GPUs"),
        (("-n", "1", "--must", "0,1"), "must names 2 GPUs"),
        (("-n", "1", "--candidates", ""), "candidates lists no GPU"),
        (("-n", "1", "--candidates", "GPU-nope"), "there is no GPU 'GPU-nope' here"),
    ],
)
def test_invalid_options_of_best_end_with_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], why: str
) -> None:
    file = recording(tmp_path / "recording.gz")
    status, out, err = run(capsys, "--recording", str(file), "best", *words)
    assert (status, out) == (2, "")
    assert why in err
