"""Sentences, ids and figures of holdings and XID errors."""

import re
from pathlib import Path

import yaml

from pipeline.changes.descriptions import (
    PROGRAMS,
    error_id,
    figures,
    holding_id,
    holding_sentence,
    meaning,
    xid_sentence,
)
from pipeline.model import NS
from tests.support.nodes import at, gpu
from tests.support.usage import holding, victim, xid_error

ALERTS = Path(__file__).parents[3] / "deploy" / "chart" / "files" / "alerts.yaml"


def test_figures_are_integers_and_unknown_ones_are_left_out() -> None:
    bare = holding("a", gpu(0), end=at(60), gap=10 * NS)
    assert dict(figures(bare)) == {
        "counted_nanoseconds": 50 * NS,
        "gap_nanoseconds": 10 * NS,
        "held_nanoseconds": 50 * NS,
    }
    full = holding(
        "a",
        gpu(0),
        end=at(60),
        held=30 * NS,
        busy=15 * NS,
        energy=7,
        mean=3,
        peak=5,
        busy_peak=9,
        contested=5 * NS,
        switching=NS,
    )
    assert dict(figures(full)) == {
        "counted_nanoseconds": 60 * NS,
        "gap_nanoseconds": 0,
        "held_nanoseconds": 30 * NS,
        "busy_nanoseconds": 15 * NS,
        "busy_error_nanoseconds": 3 * NS,
        "contested_busy_nanoseconds": 5 * NS,
        "switching_nanoseconds": NS,
        "busy_mean_ppm": 250_000,
        "busy_peak_ppm": 9,
        "energy_millijoules": 7,
        "memory_mean_bytes": 3,
        "memory_peak_bytes": 5,
    }


def test_different_holdings_and_errors_have_different_ids() -> None:
    one = holding("a", gpu(0), end=at(1))
    others = [
        holding("a", gpu(1), end=at(1)),
        holding("b", gpu(0), end=at(1)),
        holding("a", gpu(0), container="side", end=at(1)),
        holding("a", gpu(0), start=at(0.5), end=at(1)),
        holding("a", gpu(0), uid="", end=at(1)),
        holding("a", gpu(0), uid="", namespace="lab", end=at(1)),
    ]
    assert len({holding_id(each) for each in (one, *others)}) == 7
    assert holding_id(one) == holding_id(holding("a", gpu(0), end=at(2), busy=1, serial=9))
    errors = [xid_error(gpu(0), 79), xid_error(gpu(0), 13), xid_error(gpu(0), 79, when=at(1))]
    assert len({error_id(each) for each in errors}) == 3
    assert error_id(errors[0]) == error_id(xid_error(gpu(0), 79, revision=1, pid=7))


def test_sentences_describe_holdings_and_errors() -> None:
    uuid = gpu(0).uuid
    assert (
        holding_sentence(holding("a", gpu(0), end=at(1.5))) == f"ml/a/main held {uuid} for 1.500 s"
    )
    used = holding("", gpu(0), namespace="", container="", uid="u", source="", end=at(0.0003))
    assert holding_sentence(used) == f"u used {uuid} for 0.000 s"
    error = xid_error(gpu(0), 79, victim("a", gpu(0)))
    assert xid_sentence(error) == f"XID 79 on {uuid}: GPU has fallen off the bus"
    assert xid_sentence(error, error.victims[0].subject).endswith("; affected container: ml/a/main")
    assert xid_sentence(xid_error(gpu(0), 9999)) == f"XID 9999 on {uuid}"
    assert meaning(9999) == ""


def test_codes_of_program_faults_equal_those_of_the_alert() -> None:
    rules = [
        rule
        for group in yaml.safe_load(ALERTS.read_text())["groups"]
        for rule in group["rules"]
        if rule.get("alert") == "PodgpuXidApplication"
    ]
    [codes] = {re.search(r'xid=~"([^"]+)"', rule["expr"])[1] for rule in rules}  # type: ignore[index]
    assert {code for code in range(1000) if re.fullmatch(codes, str(code))} == PROGRAMS
