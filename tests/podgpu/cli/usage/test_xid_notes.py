"""`podgpu usage --holdings` says what the XID codes of the holdings mean and what to do."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from pipeline.ledger.queries import HoldingRecord
from podgpu.cli.usage.xid_notes import xid_notes
from tests.podgpu.cli.usage.usage_command import run


@dataclass
class _Xids:
    xids: tuple[tuple[int, int], ...]


def notes(*holdings: tuple[tuple[int, int], ...]) -> list[str]:
    return list(xid_notes(cast(HoldingRecord, _Xids(each)) for each in holdings))


def test_each_code_is_described_once_in_the_order_of_the_codes() -> None:
    assert notes(((79, 1), (31, 2)), (), ((31, 1),)) == [
        "XID 31: Page fault in the GPU's memory; advice: restart the program",
        "XID 79: GPU has fallen off the bus; advice: reboot the node",
    ]


def test_an_unknown_code_is_named_too() -> None:
    assert notes(((4711, 1),)) == ["XID 4711: not in the catalogue of XID codes"]


def test_without_errors_there_are_no_notes() -> None:
    assert notes((), ()) == []


def test_the_table_and_json_describe_the_codes(
    ledger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, table, _ = run(capsys, "--ledger", ledger, "--holdings")
    assert table.endswith("\nXID 31: Page fault in the GPU's memory; advice: restart the program\n")
    _, text, _ = run(capsys, "--ledger", ledger, "--holdings", "--format", "json")
    [error] = [error for one in json.loads(text)["holdings"] for error in one["xids"]]
    assert error == {
        "code": 31,
        "count": 1,
        "meaning": "Page fault in the GPU's memory",
        "action": "restart_app",
    }
