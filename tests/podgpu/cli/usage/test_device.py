"""`podgpu usage --device`: who used one GPU, and what that cost."""

import csv
import io
from pathlib import Path

import pytest

from pipeline.ledger.reports import GroupBy, Prices, build_report
from podgpu.cli.usage.report_table import report_lines
from tests.pipeline.ledger.reports.windows import identity, usage_row, window
from tests.podgpu.cli.usage.test_command import FIGURES, PRICES, Capsys, report
from tests.podgpu.cli.usage.usage_command import run
from tests.support.nodes import uuid_of


def test_one_command_says_who_used_a_gpu_and_what_it_cost(ledger: Path, capsys: Capsys) -> None:
    one = report(ledger, capsys, "--device", "1", *PRICES)
    devices = report(ledger, capsys, "--by", "device", *PRICES)["rows"]
    assert one["by"] == "pod"
    assert [row["pod"] for row in one["rows"]] == ["serve-5d8c7b9f64-abcde", "train-1"]
    [row] = [each for each in devices if each["device"] == uuid_of(1)]
    assert {name: one["total"][name] for name in FIGURES} == {name: row[name] for name in FIGURES}
    for name in FIGURES:
        parts = [*one["rows"], one["free"], one["unknown"], one["unattributed"]]
        assert sum(each[name] or 0 for each in parts) == row[name], name


def test_the_table_names_the_gpu(ledger: Path, capsys: Capsys) -> None:
    _, out, _ = run(capsys, "--ledger", ledger, "--device", "1", "--by", "namespace")
    assert out.splitlines()[0].endswith("UTC, GPU 1 NVIDIA H100 80GB HBM3, by namespace")


def test_the_mig_instances_of_the_gpu_are_counted() -> None:
    rows = [usage_row(device, None, 1, 0, 1) for device in ("GPU-0", "MIG-1", "MIG-2")]
    found = build_report(window(rows), GroupBy("pod"), Prices())
    first = report_lines(found, 0, one_device=True)[0]
    assert first.endswith("UTC, GPU-0 NVIDIA H100 80GB HBM3 with 2 MIG instances, by pod")


def test_the_reports_by_device_have_the_index(ledger: Path, capsys: Capsys) -> None:
    document = report(ledger, capsys, "--by", "device")
    assert [one["gpu_index"] for one in document["devices"]] == [0, 1]
    _, out, _ = run(capsys, "--ledger", ledger, "--format", "csv", "--by", "device")
    assert [row["gpu_index"] for row in csv.DictReader(io.StringIO(out))] == ["0", "1", *[""] * 4]


def test_the_holdings_of_one_gpu(ledger: Path, capsys: Capsys) -> None:
    held = report(ledger, capsys, "--holdings", "--device", "1")["holdings"]
    assert {one["device"] for one in held} == {uuid_of(1)}
    assert len(held) == 2


def test_an_unknown_device_is_an_error(ledger: Path, capsys: Capsys) -> None:
    code, out, err = run(capsys, "--ledger", ledger, "--device", "7")
    assert (code, out) == (2, "")
    assert "--device: no device '7' has usage in this time; the devices are: GPU 0" in err


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("gpu", 'did you mean "device"?'),
        ("pod,device", "for the pods of one device: --device 1 --by pod"),
    ],
)
def test_other_ways_to_ask_for_the_pods_of_a_gpu_lead_to_it(
    capsys: Capsys, by: str, expected: str
) -> None:
    code, _, err = run(capsys, "--by", by)
    assert code == 2
    assert expected in err


def test_a_group_that_was_busy_for_longer_than_its_share_was_not_idle() -> None:
    rows = [
        usage_row("GPU-0", identity("a"), 2, 3, 1),
        usage_row("GPU-0", identity("b"), 4, 1, 1),
        usage_row("GPU-0", None, 1, 0.5, 1),
    ]
    lines = report_lines(build_report(window(rows), GroupBy("pod"), Prices()), 0)
    idle = lines[3].split().index("IDLE") - 4  # HELD, FREE, UNKNOWN, BUSY have a unit each
    cells = {line.split()[0]: line.split()[idle] for line in lines[4:10]}
    no_container = dict.fromkeys(("(free)", "(unknown)", "(unattributed)"), "-")
    assert cells == {"ml/a": "none", "ml/b": "3.0", **no_container, "(total)": "1.5"}
    assert any(
        line.startswith("none: busy for longer than its share") and "HELD minus BUSY" in line
        for line in lines
    )
