"""The NVML calls of a round are exactly those that `docs/fields.md` documents."""

import re
from collections import Counter
from pathlib import Path

import pytest

from sources.nvml.topology_poller import TopologyPoller
from tests.fakes.nvml import FakeNvml, h100s, linked, mig_node
from tests.sources.nvml.harness import next_rounds, options, rounds, running, until
from tests.support.contexts import FakeSourceContext

PAGE = Path(__file__).parents[3] / "docs" / "fields.md"

NOT_OF_ROUNDS = re.compile("Event(Set|Types)|RegisterEvents")


@pytest.fixture(autouse=True)
def no_surveys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable topology reads, which are not part of a round. Other tests cover them."""

    async def after_round(_: TopologyPoller, *, slow: bool) -> None:
        pass

    monkeypatch.setattr(TopologyPoller, "after_round", after_round)


def documented(heading: str) -> Counter[str]:
    """Return the calls in the list below a heading: one line `- nvmlX(...)` for each call."""
    part = PAGE.read_text().partition(f"### {heading}\n")[2].partition("\n#")[0]
    return Counter(re.findall(r"^- `(nvml\w+)", part, re.MULTILINE))


async def calls_of_rounds(
    fake: FakeNvml, *, slow: float, count: int, gpus: int
) -> tuple[Counter[str], int]:
    """Return the calls of at least `count` rounds after the first, and the number of rounds."""
    ctx = FakeSourceContext()
    # GPM needs samples that are at least 0.1 s apart.
    # Usage samples are not part of a round.
    async with running(ctx, options(interval=0.2, slow=slow, usage=False)):
        await until(lambda: fake.calls().get("nvmlDeviceRegisterEvents", 0) >= gpus)
        await next_rounds(ctx, 1)
        fake.calls(reset=True)
        before = len(rounds(ctx))
        await next_rounds(ctx, count)
        calls = Counter(fake.calls(reset=True))
        done = len(rounds(ctx)) - before
    return Counter({k: n for k, n in calls.items() if not NOT_OF_ROUNDS.search(k)}), done


@pytest.mark.slow
@pytest.mark.parametrize("gpus", [1, 4])
async def test_a_fast_round_makes_the_documented_calls(fake_nvml: FakeNvml, gpus: int) -> None:
    fake_nvml.set(h100s(gpus))
    calls, done = await calls_of_rounds(fake_nvml, slow=60, count=3, gpus=gpus)
    expected = {name: n * gpus * done for name, n in documented("Fast round, each GPU").items()}
    expected |= {name: n * done for name, n in documented("Fast round, once").items()}
    assert calls == expected


@pytest.mark.slow
async def test_a_slow_round_adds_the_documented_calls(fake_nvml: FakeNvml) -> None:
    fake_nvml.set(h100s(2, **linked()))
    calls, done = await calls_of_rounds(fake_nvml, slow=0.2, count=3, gpus=2)
    each = documented("Fast round, each GPU") + documented("Slow round, each GPU, added")
    expected = {name: n * 2 * done for name, n in each.items()}
    expected |= {name: n * done for name, n in documented("Fast round, once").items()}
    assert calls == expected


@pytest.mark.slow
async def test_a_mig_instance_adds_the_documented_calls(fake_nvml: FakeNvml) -> None:
    fake_nvml.set(mig_node())
    calls, done = await calls_of_rounds(fake_nvml, slow=60, count=3, gpus=8)
    lacking = {
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetEncoderUtilization",
        "nvmlDeviceGetDecoderUtilization",
    }
    expected: Counter[str] = Counter()
    for name, n in documented("Fast round, each GPU").items():
        expected[name] += 0 if name in lacking else n * 8 * done
    for name, n in documented("Fast round, once").items():
        expected[name] += n * done
    for name, n in documented("Fast round, each MIG instance, added").items():
        expected[name] += n * 56 * done
    assert calls == +expected


@pytest.mark.slow
async def test_unsupported_calls_are_not_repeated_each_round(fake_nvml: FakeNvml) -> None:
    fake_nvml.set(h100s(1, errors={"nvmlDeviceGetEncoderUtilization": 3}))
    calls, _ = await calls_of_rounds(fake_nvml, slow=60, count=3, gpus=1)
    assert "nvmlDeviceGetEncoderUtilization" not in calls
