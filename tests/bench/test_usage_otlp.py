"""What it costs to push who used how much, against opentelemetry-sdk with the same points.

Times depend on the machine, ratios hardly: a ratio is all that is asserted.
"""

import pytest

from pipeline.fields import FieldPlan
from sinks.otlp.encoding.encoder import Encoder
from tests.bench.test_otlp import Theirs, show, spent
from tests.bench.test_usage_page import CONTAINERS, EACH, GPUS, looks
from tests.sinks.otlp.encoding.support import points


def test_encoding_who_used_what(capsys: pytest.CaptureFixture[str]) -> None:
    both = looks()
    encoder = Encoder("node-1", FieldPlan.everything())
    given_out = points(encoder.encode(both[0]))
    assert len(given_out) == CONTAINERS * 4 + GPUS * EACH * 8
    theirs = Theirs(given_out)

    def look() -> None:
        both.reverse()
        assert encoder.encode(both[0])

    try:
        look()
        sdk = spent(theirs.encode, 4)
        ours = spent(look, 30)
        between = spent(lambda: encoder.encode(both[0]), 30)
    finally:
        theirs.close()
    with capsys.disabled():
        print(f"\n  {len(given_out)} points of {CONTAINERS} containers")
    rows = [
        ("opentelemetry-sdk: record, collect, encode", sdk, sdk),
        ("a snapshot after a look at the devices", ours, sdk),
        ("a snapshot between two looks", between, sdk),
    ]
    show(capsys, rows)
    assert sdk / ours >= 3
