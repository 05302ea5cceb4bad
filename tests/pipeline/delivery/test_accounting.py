"""Random histories: each record arrives once and in order, or it is counted as lost."""

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
from tests.support.examples import examples

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


async def run_history(
    actions: list[tuple[str, Any]], *, queue: str, rate: str, signals: tuple[int, ...]
) -> None:
    durable = queue == "durable list"
    bench = Bench(
        path=Path("/queue") if durable else None,
        most_bytes=500,
        max_rate=rate,
        max_size="1MiB",
        open_queue=open_queue if queue == "memory" else None,
    )
    answers: list[Outcome] = []
    refused_records: list[int] = []
    expected: Counter[str] = Counter()  # points that the receiver accepted or refused
    retried: set[str] = set()  # reasons for which it accepted no points for now
    slow, large = 0.0, False

    async def answer(records: Sequence[Record]) -> Outcome:
        await asyncio.sleep(slow)
        assert size_of(records) <= 500
        outcome, points = answers.pop(0) if answers else Acked(), points_of(records)
        if isinstance(outcome, Retry):
            retried.add(outcome.reason)
            partial = records[: outcome.accepted]
            bench.push.accepted += map(number_of, partial)
            expected["accepted"] += points_of(partial)
        elif isinstance(outcome, Acked):
            refused = min(max(0, outcome.rejected), points)
            expected["partial"] += refused
            expected["accepted"] += points - refused
        elif isinstance(outcome, Rejected) or len(records) == 1:
            refused_records.extend(map(number_of, records))
            expected[outcome.reason if isinstance(outcome, Rejected) else "too_large"] += points
        return outcome

    bench.push.answer = answer
    bench.push.signals = signals
    while True:
        async with bench.sink:
            # The queue has room for all points of a test, so that points are dropped only at the
            # end.
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
                    await asyncio.sleep(0.001)  # the given points are encoded first
                    bench.push.size = what
                    large |= bench.push.size > 500
                else:
                    ended = False
                    if kind == "cancel":
                        await asyncio.sleep(0.001)  # the runtime counts what is in the inbox
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
    assert not set(accepted) & set(refused_records)
    assert accepted == sorted(accepted)
    refused, dropped = bench.by_reason("rejected_total"), bench.by_reason("dropped_total")
    assert not durable or not dropped
    # Records that are too large were never sent.
    expected["too_large"] += (
        round(refused.get("too_large", 0)) - expected["too_large"] if large else 0
    )
    if not durable and any(signals):
        # At the end, records of other signals that are not accepted are dropped, because they
        # block the main signal.
        given_up = {
            reason: refused.pop(reason) for reason in retried & refused.keys() - expected.keys()
        }
        assert sum(given_up.values()) <= bench.given - expected["accepted"]
    assert refused == {k: v for k, v in expected.items() if v and k != "accepted"}
    assert bench.value("emitted_total") == expected["accepted"]
    assert bench.value("produced_total") == bench.given
    assert bench.value("queued") == 0


@pytest.mark.slow
@pytest.mark.timeout(120)
@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(ACTIONS, max_size=25),
    st.sampled_from(["durable list", "list", "memory"]),
    st.sampled_from(["0B", "3KiB", "4MiB"]),
    st.sampled_from([(0,), (0, 0, 1), (0, 1, 1, 3)]),
)
def test_each_record_is_delivered_once_or_counted_in_any_history(
    actions: list[tuple[str, Any]], queue: str, rate: str, signals: tuple[int, ...]
) -> None:
    with closing(looptime.new_event_loop(noop_cycles=0)) as loop:
        loop.run_until_complete(run_history(list(actions), queue=queue, rate=rate, signals=signals))
