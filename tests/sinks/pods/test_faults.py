"""What becomes of it when others write too, and when the API server refuses."""

import asyncio

import pytest

from pipeline.base.errors import ApiError, TransientError
from tests.sinks.pods.support import KEY, Bench, asking, held, path_of, pod_of, refused, uuids

pytestmark = pytest.mark.looptime(start=1000)


async def failing(bench: Bench) -> Exception:
    """Run the sink until it fails, and enter it again for the next time."""
    async with bench.sink:
        with pytest.raises(TransientError) as caught:
            await asyncio.wait_for(bench.sink.run(bench.inbox), 100)
    return caught.value


# -- other writers


async def test_who_comes_between_reading_and_changing_keeps_his_value() -> None:
    bench = Bench()
    bench.has(pod_of())
    come = iter([True])

    def between(method: str, path: str) -> None:
        if method == "PATCH" and next(come, False):
            bench.api.annotate(path, **{KEY: "GPU-theirs"})

    bench.api.before = between
    async with bench.keeping():
        bench.holds(held("a", 0))
        await bench.rests(60)
    assert bench.annotations() == {KEY: "GPU-theirs"}
    assert bench.asked() == ["GET a", "PATCH a", "GET a"]
    assert bench.counted() == {"get ok": 2, "patch 409": 1}
    assert bench.failed == {"annotate foreign": 1}


async def test_who_changes_something_else_in_between_loses_nothing_either() -> None:
    bench = Bench()
    bench.has(pod_of())
    turns = iter(range(2))

    def between(method: str, path: str) -> None:
        if method == "PATCH" and (turn := next(turns, None)) is not None:
            bench.api.annotate(path, team=str(turn))

    bench.api.before = between
    async with bench.keeping():
        bench.holds(held("a", 0))
        await bench.rests()
    assert bench.annotations()["team"] == "1"
    assert bench.written() == {KEY: uuids(0)}


async def test_a_pod_that_changes_all_the_time_comes_later_and_keeps_no_one_waiting() -> None:
    bench = Bench()
    bench.has(pod_of("a"), pod_of("b"))
    turn = 0

    def between(method: str, path: str) -> None:
        nonlocal turn
        if method == "PATCH" and path == path_of("a") and turn < 6:
            turn += 1
            bench.api.annotate(path, turn=str(turn))

    bench.api.before = between
    async with bench.keeping():
        bench.holds(held("a", 0), held("b", 1))
        await bench.rests(2)
        assert bench.asked() == ["GET a", "PATCH a"] * 4 + ["GET b", "PATCH b"]
        await bench.rests(20)
    assert bench.asked()[10:] == ["GET a", "PATCH a"] * 3
    assert bench.written("a") == {KEY: uuids(0)}


async def test_a_pod_made_again_between_reading_and_changing_is_not_touched() -> None:
    bench = Bench()
    bench.has(pod_of(uid="first"))

    def between(method: str, path: str) -> None:
        if method == "PATCH" and bench.api.objects[path]["metadata"]["uid"] == "first":
            bench.has(pod_of(uid="second", node="node-2"))

    bench.api.before = between
    async with bench.keeping():
        bench.holds(held("a", 0))
        await bench.rests()
    assert bench.annotations() == {}


# -- what the server says


@pytest.mark.parametrize("when", ["GET", "PATCH"])
async def test_a_pod_that_is_gone_is_no_error(when: str) -> None:
    bench = Bench()
    bench.has(pod_of(), pod_of("b"))

    def before(method: str, path: str) -> None:
        if method == when and path == path_of("a"):
            bench.api.objects.pop(path, None)

    bench.api.before = before
    async with bench.keeping():
        bench.holds(held("a", 0), held("b", 1))
        await bench.rests(60)
    assert bench.written("b") == {KEY: uuids(1)}
    # It is asked about again, less and less often, for as long as the kubelet names it.
    assert bench.counted()["get 404"] == (3 if when == "GET" else 2)
    assert bench.failed == {}


@pytest.mark.parametrize("status", [0, 401, 403, 429, 500, 503])
@pytest.mark.parametrize("when", ["GET", "PATCH"])
async def test_every_other_refusal_is_the_supervisor_s(status: int, when: str) -> None:
    bench = Bench()
    bench.has(pod_of())
    bench.api.answers.extend([None] * (when == "PATCH"))
    bench.api.answers.append(refused(status))
    bench.holds(held("a", 0))
    error = await failing(bench)
    assert isinstance(error, ApiError)
    assert error.status == status
    assert bench.counted()[f"{when.lower()} {status or 'error'}"] == 1
    assert bench.written() == {}
    async with bench.keeping():
        await bench.rests()
    assert bench.written() == {KEY: uuids(0)}


async def test_a_change_whose_answer_was_lost_is_known_by_the_mark() -> None:
    bench = Bench()
    bench.has(pod_of())
    bench.api.losing = 1
    bench.holds(held("a", 0))
    await failing(bench)
    bench.holds(held("a", 1))
    async with bench.keeping():
        await bench.rests()
    assert bench.written() == {KEY: uuids(1)}
    assert bench.failed == {}


async def test_a_holding_that_comes_back_after_a_lost_answer_is_looked_at() -> None:
    bench = Bench()
    bench.has(pod_of())
    async with bench.keeping():
        bench.holds(held("a", 0))
        await bench.rests()
    bench.api.losing = 1
    bench.holds(held("a", 1))
    await failing(bench)
    assert bench.written() == {KEY: uuids(1)}
    bench.holds(held("a", 0))
    async with bench.keeping():
        await bench.rests()
    assert bench.written() == {KEY: uuids(0)}


async def test_one_pod_that_is_refused_does_not_keep_the_others_waiting() -> None:
    bench = Bench()
    bench.has(pod_of("a"), pod_of("b"), pod_of("c"))
    get = bench.api.get

    async def refusing(path: str, query: dict[str, str]) -> bytes:
        if path == path_of("a"):
            raise refused(500)
        return await get(path, query)

    bench.api.get = refusing  # type: ignore[method-assign,assignment]
    bench.holds(held("a", 0), held("b", 1), held("c", 2))
    for _ in range(2):
        await failing(bench)
    assert (bench.written("b"), bench.written("c")) == ({KEY: uuids(1)}, {KEY: uuids(2)})


@pytest.mark.parametrize(
    "body", [b"<html>", b"", b"[]", b"null", b"{}", b'{"metadata": 7}', b'{"metadata": {}}']
)
async def test_an_answer_that_is_no_pod_says_where_to_look(body: bytes) -> None:
    bench = Bench()

    async def page(path: str, query: dict[str, str]) -> bytes:
        return body

    bench.api.get = page  # type: ignore[method-assign,assignment]
    bench.holds(held("a", 0))
    error = await failing(bench)
    assert str(error).startswith("GET /api/v1/namespaces/ml/pods/a: the response is not a Pod; ")
    assert bench.api.patches() == []


async def test_without_credentials_it_says_so_at_once() -> None:
    bench = Bench()
    bench.ctx.api = None
    with pytest.raises(TransientError, match="no credentials"):
        await bench.sink.__aenter__()
    bench.ctx.api = bench.api
    bench.has(pod_of("a", asking(gpu=1)))
    bench.holds(held("a", 0))
    async with bench.keeping():
        await bench.rests()
    assert bench.written() == {KEY: uuids(0)}
