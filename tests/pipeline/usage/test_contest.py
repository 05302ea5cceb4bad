"""How uncertain a split of busy time is: what each user's windows may owe to the others."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.model import ContainerUsage, split_error_ns
from pipeline.usage.contest import UNSEEN_NS, Contest, contests
from tests.pipeline.usage.samples import GPU, MS, Book, S, container, holder, process
from tests.support.nodes import at
from tests.support.usage import account, holding, used

PARTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 5 * S), max_size=6)
USERS = st.frozensets(st.sampled_from(["a", "b", "g", None]))


def amounts(one: ContainerUsage) -> tuple[int | None, int | None]:
    return one.contested_ns, one.switching_ns


@pytest.mark.parametrize(
    ("busy", "unattributed", "users", "contested"),
    [
        pytest.param({"a": 4 * S}, 0, {"a"}, {}, id="the only user is exact"),
        pytest.param({}, 4 * S, {None}, {}, id="only processes outside of containers"),
        pytest.param({"a": 0}, 0, {"a", "b"}, {}, id="nothing was split"),
        pytest.param(
            {"a": 2 * S, "b": 2 * S}, 0, {"a", "b"}, {"a": S, "b": S}, id="two equal users"
        ),
        pytest.param(
            {"a": 3 * S, "b": S}, 0, {"a", "b"}, {"a": 750 * MS, "b": 750 * MS}, id="two users"
        ),
        pytest.param({"a": 3 * S}, S, {"a"}, {"a": 750 * MS}, id="one user is unattributed"),
        pytest.param(
            {"a": 2 * S, "b": S, "c": S},
            0,
            set(),
            {"a": S, "b": 750 * MS, "c": 750 * MS},
            id="three users",
        ),
        pytest.param(
            {"a": 1900 * MS},
            0,
            {"a", "b"},
            {"a": 95 * MS, "b": 95 * MS},
            id="a user that got no window may have worked",
        ),
        pytest.param(
            {"a": 50 * MS},
            0,
            {"a", "b"},
            {"a": 25 * MS, "b": 25 * MS},
            id="but no longer than the device was busy",
        ),
    ],
)
def test_the_contested_time(
    busy: dict[str, int], unattributed: int, users: set[str | None], contested: dict[str, int]
) -> None:
    found = contests(busy, unattributed, users, 5 * S)
    assert {one: each.contested_ns for one, each in found.items()} == contested


@pytest.mark.parametrize(
    ("busy_s", "switching_ms"), [(5, 277), (2.5, 34), (0.5, 0)], ids=["saturated", "half", "idle"]
)
def test_users_of_a_saturated_device_may_have_switched_instead_of_worked(
    busy_s: float, switching_ms: int
) -> None:
    """Two users that contest 25 % of the time: 5.6 points, of which 5.2 were seen on an H100."""
    each = round(busy_s * S / 2)
    found = contests({"a": each, "b": each}, 0, ("a", "b"), 5 * S)
    assert found["a"].switching_ns // MS == switching_ms


@given(PARTS, st.integers(0, S), USERS)
def test_the_contested_time_is_symmetric_and_bounded(
    busy: dict[str, int], unattributed: int, users: frozenset[str | None]
) -> None:
    total = sum(busy.values()) + unattributed
    found = contests(busy, unattributed, users, max(total, 1))
    assert found == contests(
        dict(reversed(busy.items())), unattributed, sorted(users, key=str), max(total, 1)
    )
    for one, each in found.items():
        assert 0 <= each.contested_ns <= max(busy.get(one, 0), UNSEEN_NS)
        assert 0 <= each.switching_ns <= each.contested_ns
        error = split_error_ns(*each)
        assert error is not None
        assert error >= 0
    if len(found) == 2 and not unattributed and None not in users:
        first, second = found.values()
        assert first == second


def test_the_account_and_its_holdings_have_the_same_sum() -> None:
    book = Book()
    book.sample(0, None)
    book.hold(1, holder("a"))
    book.sample(5, 0, process("a", busy=2 * S), process("b", busy=2 * S), busy=4 * S)
    first = container(book.account(), "a")
    assert first.holding is not None
    assert amounts(first) == (S, 142_222_222)
    assert (first.holding.contested_ns, first.holding.switching_ns) == amounts(first)
    book.hold(6)
    book.sample(10, 5, process("b", busy=2 * S), busy=2 * S)
    book.sample(15, 10, process("b", busy=2 * S), busy=2 * S)
    book.sample(20, 15, process("a", busy=2 * S), process("b", busy=2 * S), busy=4 * S)
    again = container(book.account(), "a")
    ended = [one for one in book.usage().ended if one.subject.pod == "a"]
    assert again.holding is not None
    [before] = ended
    assert again.contested_ns == (before.contested_ns or 0) + (again.holding.contested_ns or 0)
    assert again.contested_ns is not None
    assert first.contested_ns is not None
    assert again.contested_ns > first.contested_ns


def test_nothing_is_contested_where_nothing_was_split() -> None:
    """As on a MIG instance with several containers: the driver reports no process."""
    book = Book()
    book.sample(0, None)
    book.hold(1, holder("a"), holder("b"))
    book.sample(5, 0, process("a"), process("b"), busy=4 * S)
    assert book.account().busy_unattributed_ns == 4 * S
    assert [amounts(one) for one in book.account().containers] == [(None, None)] * 2
    book.sample(10, 5, process("a", busy=S), process("b", busy=0), busy=S)
    assert [amounts(one)[0] for one in book.account().containers] == [90_909_090] * 2


def test_a_sole_user_is_exact_and_one_without_busy_time_is_unknown() -> None:
    book = Book()
    book.sample(0, None)
    book.hold(1, holder("a"), holder("b"))
    book.sample(5, 0, process("a", busy=4 * S), busy=4 * S)
    assert amounts(container(book.account(), "a")) == (0, 0)
    book.sample(10, 5, process("a", busy=None), process(None, busy=None, known=False), busy=None)
    assert amounts(container(book.account(), "a")) == (0, 0)
    other = Book()
    other.sample(0, None)
    other.hold(1, holder("a"))
    other.sample(5, 0)
    assert amounts(container(other.account(), "a")) == (None, None)


@pytest.mark.parametrize(
    ("stored", "after"),
    [
        pytest.param(Contest(7, 3), (S + 7, 142_222_222 + 3), id="continues"),
        pytest.param(None, (None, None), id="a part was counted without it"),
    ],
)
def test_restored_accounts_continue(
    stored: Contest | None, after: tuple[int | None, int | None]
) -> None:
    known = (None, None) if stored is None else stored
    one = holding("a", GPU, uid="uid-a", start=at(0), until=at(10), held=S, busy=S)
    one = replace(one, contested_ns=known[0], switching_ns=known[1])
    entry = used("a", uid="uid-a", busy=S, held=S, holding=one)
    entry = replace(entry, contested_ns=known[0], switching_ns=known[1])
    book = Book()
    book.accounts.restore((account(GPU, entry, until=at(10), busy=S, unheld=0),), at(20))
    book.hold(20, holder("a"), holder("b"))
    book.sample(25, None, process("a"), process("b"))
    book.sample(30, 25, process("a", busy=2 * S), process("b", busy=2 * S), busy=4 * S)
    found = container(book.account(), "a")
    assert found.holding is not None
    assert amounts(found) == after
    assert (found.holding.contested_ns, found.holding.switching_ns) == after
    assert amounts(container(book.account(), "b")) == (S, 142_222_222)
