"""After any history of changes and failures, the copy equals the server's collection."""

import asyncio
from contextlib import closing

import looptime
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.base.errors import ApiError
from tests.pipeline.kube.recorder import reflecting
from tests.support.examples import examples
from tests.support.kube import Collection, FakeApi, named, status

NAMES = st.sampled_from("abcd")
FAILURES = st.sampled_from(
    [
        ApiError("refused"),
        ApiError("busy", status=429, retry_after=3),
        ApiError("sick", status=500),
        ApiError("down", status=503),
        ApiError("too old", status=410, reason="Expired"),
        ApiError("not that", status=422),
        ApiError("forbidden", status=403),
    ]
)
ACTIONS = st.one_of(
    st.tuples(st.just("put"), NAMES, st.integers(0, 2)),
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.just("bookmark")),
    st.tuples(st.just("compact")),
    st.tuples(st.just("error"), st.sampled_from([410, 500, 0])),
    st.tuples(st.just("cut"), st.one_of(st.none(), FAILURES)),
    st.tuples(st.just("answer"), FAILURES),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.5, 3.0, 90.0])),
)


async def run_history(actions: list[tuple[object, ...]]) -> None:
    collection = Collection()
    api = FakeApi(collection)
    async with reflecting(api) as recorder:
        for kind, *arguments in actions:
            match kind, arguments:
                case "put", [str(name), generation]:
                    raw = named(name)
                    raw["metadata"]["uid"] = f"{name}-{generation}"
                    collection.put(raw)
                case "delete", [str(name)]:
                    if ("ns", name) in collection.objects:
                        collection.delete("ns", name)
                case "bookmark", _:
                    collection.bookmark()
                case "compact", _:
                    collection.compact()
                case "error", [int(code)]:
                    collection.error(status(code, ""))
                case "cut", [error]:
                    api.cut(error)  # type: ignore[arg-type]
                case "answer", [ApiError() as error]:
                    api.answers.append(error)
                case "wait", [float(seconds)]:
                    await asyncio.sleep(seconds)
                case _:
                    raise AssertionError(kind)
        await asyncio.sleep(900)
        expected = {name: raw["metadata"]["uid"] for (_, name), raw in collection.objects.items()}
        assert recorder.copy == expected
        started = api.requests[0][0]
        ended = asyncio.get_running_loop().time()
        # At most 5 requests at the start, 2 for each action, and one in 30 s in the long run.
        assert len(api.requests) <= 5 + 2 * len(actions) + (ended - started) / 30


@pytest.mark.slow
@settings(max_examples=examples(100), deadline=None)
@given(st.lists(ACTIONS, max_size=25))
@example([("wait", 0.0), ("wait", 0.0), ("put", "a", 1), ("wait", 0.0), ("put", "a", 0)])
def test_after_any_history_the_copy_equals_the_collection(
    actions: list[tuple[object, ...]],
) -> None:
    with closing(looptime.new_event_loop()) as loop:
        loop.run_until_complete(run_history(actions))
