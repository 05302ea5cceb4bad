"""Any history: each record arrives once unless it is counted, in its order, and the sums hold."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import looptime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.delivery.contract import Acked, Outcome, Record, Rejected, Retry, TooLarge
from pipeline.delivery.queue.factory import open_queue
from tests.pipeline.delivery.support import Bench, number_of, points_of, size_of

OUTCOMES = st.one_of(
    st.just(Acked()),
    st.builds(Acked, st.integers(-1, 12)),
    st.builds(Rejected, st.sampled_from(["http_400", "http_500"]), st.just("no")),
    st.builds(
        Retry,
        st.sampled_from(["unavailable", "timeout"]),
        st.just("not now"),
        st.sampled_from([None, 0.0, 3.0, 1e9]),
        st.integers(0, 3),
    ),
    st.just(TooLarge("413")),
)
ACTIONS = st.one_of(
    st.tuples(st.just("give"), st.lists(st.integers(1, 5), min_size=1, max_size=6)),
    st.tuples(st.just("wait"), st.sampled_from([0.001, 0.5, 3, 40])),
    st.tuples(st.just("answers"), st.lists(OUTCOMES, max_size=5)),
    st.tuples(st.just("slow"), st.sampled_from([0, 0.4, 5])),
    st.tuples(st.just("size"), st.sampled_from([20, 90, 200, 600])),
    st.tuples(st.just("stop"), st.none()),
    st.tuples(st.just("cancel"), st.none()),
)


async def live(
    actions: list[tuple[str, Any]], *, queue: str, rate: str, signals: tuple[int, ...]
) -> None:
    lasting = queue == "lasting"
    bench = Bench(
        path=Path("/queue") if lasting else None,
        most_bytes=500,
        max_rate=rate,
        max_size="1MiB",
        open_queue=open_queue if queue == "memory" else None,
    )
    answers: list[Outcome] = []
    gone: list[int] = []
    said: Counter[str] = Counter()  # points that the receiver took or refused, by its own account
    put_off: set[str] = set()  # reasons for which it took none for now
    slow, large = 0.0, False

    async def answer(records: Sequence[Record]) -> Outcome:
        await asyncio.sleep(slow)
        assert size_of(records) <= 500
        outcome, points = answers.pop(0) if answers else Acked(), points_of(records)
        if isinstance(outcome, Retry):
            put_off.add(outcome.reason)
            taken = records[: outcome.accepted]
            bench.push.accepted += map(number_of, taken)
            said["taken"] += points_of(taken)
        elif isinstance(outcome, Acked):
            refused = min(max(0, outcome.rejected), points)
            said["partial"] += refused
            said["taken"] += points - refused
        elif isinstance(outcome, Rejected) or len(records) == 1:
            gone.extend(map(number_of, records))
            said[outcome.reason if isinstance(outcome, Rejected) else "too_large"] += points
        return outcome

    bench.push.answer = answer
    bench.push.signals = signals
    while True:
        async with bench.sink:
            # The queue of the test has room for what a test gives, so that all that is dropped is
            # dropped at the end.
            running = asyncio.create_task(bench.sink.run(bench.inbox))
            ended = True
            for _ in range(len(actions)):
                kind, what = actions.pop(0)
                if kind == "give":
                    bench.give(*what)
                elif kind == "wait":
                    await asyncio.sleep(what)
                elif kind == "answers":
                    answers.extend(what)
                elif kind == "slow":
                    slow = what
                elif kind == "size":
                    await asyncio.sleep(0.001)  # what was given has been encoded
                    bench.push.size = what
                    large |= bench.push.size > 500
                else:
                    ended = False
                    if kind == "cancel":
                        await asyncio.sleep(0.001)  # what the inbox holds is the runtime's to count
                        running.cancel()
                    break
                assert bench.imbalance == 0
            if ended:
                answers.clear()
                slow = 0
                await asyncio.sleep(100)
            bench.inbox.close()
            await asyncio.gather(running, return_exceptions=True)
            assert running.cancelled() or running.exception() is None
        assert bench.imbalance == 0
        if ended:
            break
        bench.inbox = type(bench.inbox)(1000)
    accepted = bench.push.accepted
    assert len(accepted) == len(set(accepted))
    assert not set(accepted) & set(gone)
    assert accepted == sorted(accepted)
    refused, dropped = bench.by_reason("rejected_total"), bench.by_reason("dropped_total")
    assert not lasting or not dropped
    # What is too large was never sent.
    said["too_large"] += round(refused.get("too_large", 0)) - said["too_large"] if large else 0
    if not lasting and any(signals):
        # What comes beside and isn't taken at the end is given up, for what stands behind it.
        given_up = {
            reason: refused.pop(reason) for reason in put_off & refused.keys() - said.keys()
        }
        assert sum(given_up.values()) <= bench.given - said["taken"]
    assert refused == {k: v for k, v in said.items() if v and k != "taken"}
    assert bench.value("emitted_total") == said["taken"]
    assert bench.value("produced_total") == bench.given
    assert bench.value("queued") == 0


@pytest.mark.timeout(120)
@settings(max_examples=40, deadline=None)
@given(
    st.lists(ACTIONS, max_size=25),
    st.sampled_from(["lasting", "passing", "memory"]),
    st.sampled_from(["0B", "3KiB", "4MiB"]),
    st.sampled_from([(0,), (0, 0, 1), (0, 1, 1, 3)]),
)
def test_any_history_delivers_once_or_counts(
    actions: list[tuple[str, Any]], queue: str, rate: str, signals: tuple[int, ...]
) -> None:
    with closing(looptime.new_event_loop()) as loop:
        loop.run_until_complete(live(list(actions), queue=queue, rate=rate, signals=signals))
