"""Encoding usage with OTLP, compared with opentelemetry-sdk with the same points.

Times depend on the machine, ratios hardly: only a ratio is asserted.
"""

import pytest

from pipeline.fields import FieldPlan
from sinks.otlp.encoding.encoder import Encoder
from tests.bench.test_otlp import Theirs, show, spent
from tests.bench.test_usage_page import CONTAINERS, EACH, GPUS, sampled_snapshots
from tests.sinks.otlp.encoding.support import points


def test_encoding_usage(capsys: pytest.CaptureFixture[str]) -> None:
    both = sampled_snapshots()
    encoder = Encoder("node-1", FieldPlan.everything())
    expected = points(encoder.encode(both[0]))
    assert len(expected) == CONTAINERS * 7 + GPUS * EACH * 8
    theirs = Theirs(expected)

    def next_sample() -> None:
        both.reverse()
        assert encoder.encode(both[0])

    try:
        next_sample()
        sdk = spent(theirs.encode, 4)
        ours = spent(next_sample, 30)
        between = spent(lambda: encoder.encode(both[0]), 30)
    finally:
        theirs.close()
    with capsys.disabled():
        print(f"\n  {len(expected)} points of {CONTAINERS} containers")
    rows = [
        ("opentelemetry-sdk: record, collect, encode", sdk, sdk),
        ("a snapshot after a usage sample", ours, sdk),
        ("a snapshot between two usage samples", between, sdk),
    ]
    show(capsys, rows)
    assert sdk / ours >= 3
