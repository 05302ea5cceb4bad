"""What `podgpu demo` logs first."""

import logging

import pytest

from podgpu.cli.demo.command import WHAT, messages, running_config


@pytest.mark.parametrize(
    ("port", "page", "top"),
    [
        ("9400", "http://localhost:9400", "podgpu top"),
        ("9500", "http://localhost:9500", "podgpu top --url http://localhost:9500"),
    ],
)
def test_they_name_the_page_and_the_next_commands(port: str, page: str, top: str) -> None:
    levels, (opening, live, usage, metrics) = zip(*messages(port), strict=True)
    assert set(levels) == {logging.INFO}
    assert "a recording of GPUs and pods" in WHAT
    assert opening == f"open {page}/ in a browser"
    assert live.endswith(f": {top}")
    assert usage.endswith(": podgpu usage")
    assert metrics == f"metrics: curl -s {page}/metrics"


def test_a_demo_without_a_ledger_says_why() -> None:
    found = {text: level for level, text in messages("9400", "/x is full")}
    text = "the demo has no ledger, so podgpu usage has no data: /x is full"
    assert found[text] == logging.WARNING
    assert not any("four weeks" in each for each in found)


def test_they_name_the_ledger_if_the_command_would_not_find_it() -> None:
    texts = [text for _, text in messages("9400", ledger=" --ledger /a/demo.db")]
    assert any(each.endswith(": podgpu usage --ledger /a/demo.db") for each in texts)


def test_an_option_without_a_value_is_ignored() -> None:
    """Any process can look like a demo."""
    assert running_config(("--listen",), {}).sinks.keys() >= {"metrics"}
