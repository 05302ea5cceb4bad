"""Each XID code that a shipped alert names has a counter at 0 before its first error."""

import re
from pathlib import Path

import yaml

from tests.fakes.nvml import FakeNvml
from tests.sources.nvml.harness import GPU, options, rounds, running, until, values
from tests.support.contexts import FakeSourceContext

RULES = Path(__file__).parents[3] / "deploy" / "chart" / "files" / "alerts.yaml"
CODES = range(1, 1000)


def named_codes() -> set[int]:
    """Return the codes that the expressions of the shipped alerts select by the label `xid`."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    expressions = [rule["expr"] for group in groups for rule in group["rules"]]
    matchers = {m for text in expressions for m in re.findall(r'\bxid=~?"([^"]*)"', text)}
    return {code for code in CODES if any(re.fullmatch(m, str(code)) for m in matchers)}


async def test_each_code_of_an_alert_has_a_series_at_0(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    expected = {f"xid_errors{{{code}}}": 0 for code in named_codes()}
    assert {"xid_errors{79}", "xid_errors{31}"} < expected.keys()
    async with running(ctx, options()):
        await until(lambda: expected.items() <= values(rounds(ctx)[-1], GPU[0]).items())
