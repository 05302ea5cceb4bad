"""`podgpu_xid_info`: what the XID codes mean that occurred, and the labels of the last error."""

import pytest

from pipeline.exposition.xid_families import NO_ERROR, UNKNOWN, xid_labels
from pipeline.fields.xid_catalogue import XIDS
from tests.pipeline.exposition.pages import of, parsed, rendered
from tests.support.nodes import START, Node, gpu, reading
from tests.support.usage import account, used, with_usage

INFO = "podgpu_xid_info"


def node(*seen: int | str, known: int = 79) -> Node:
    """Return a node with a counter at 0, and with errors of these codes."""
    made = Node()
    made.has(gpu(0), gpu(1))
    made.reads(
        reading(gpu(0), "xid_errors", 0, attrs=(("xid", str(known)),)),
        *(
            reading(gpu(1), "xid_last_seen_timestamp_seconds", 1.8e9, attrs=(("xid", str(code)),))
            for code in seen
        ),
    )
    return made


def test_each_code_that_occurred_is_described_once() -> None:
    series = parsed(rendered(node(94, 31).snapshot()))
    assert of(series, INFO) == [
        (
            {
                "xid": str(code),
                "meaning": XIDS[code].meaning,
                "action": XIDS[code].action,
                "Hostname": "node-1",
            },
            1,
        )
        for code in (31, 94)
    ]


def test_a_code_without_error_is_not_described() -> None:
    assert INFO.encode() not in rendered(node().snapshot())


def test_an_unknown_code_has_no_meaning_and_no_known_action() -> None:
    [(labels, _)] = of(parsed(rendered(node(4711).snapshot())), INFO)
    assert (labels["xid"], labels["meaning"], labels["action"]) == ("4711", "", "unknown")


@pytest.mark.parametrize("text", ["x", "", "\u0663", "9" * 5000])
def test_a_label_that_is_no_code_is_not_described(text: str) -> None:
    assert INFO.encode() not in rendered(node(text).snapshot())


def test_codes_of_usage_accounts_are_described_too() -> None:
    """After a restart of podgpu, accounts contain errors that this podgpu has not seen."""
    snapshot = with_usage(
        node(31).snapshot(),
        account(gpu(0), used("a", xids=((31, 2), (48, 1))), until=START),
    )
    assert [labels["xid"] for labels, _ in of(parsed(rendered(snapshot)), INFO)] == ["31", "48"]


def test_the_counters_have_no_labels_of_the_catalogue() -> None:
    series = parsed(rendered(node(31).snapshot()))
    for name in ("podgpu_xid_errors_total", "podgpu_xid_last_seen_timestamp_seconds"):
        [(labels, _)] = of(series, name)
        assert not {"meaning", "action"} & labels.keys()


@pytest.mark.parametrize("code", [0, *XIDS, 4711])
def test_the_last_error_has_its_code_and_description_as_labels(code: int) -> None:
    text = NO_ERROR if code == 0 else XIDS[code].meaning if code in XIDS else UNKNOWN
    assert xid_labels(b"%d" % code).decode() == f',err_code="{code}",err_msg="{text}"}} {code}'
