"""T4: MPS. The usage of its clients is unknown: it is not 0, and not the server's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.usage import ProcessSample
from tests.pipeline.usage.samples import Book, S, by_pod, container, holder, process
from tests.support.nodes import at

TENANTS = ("one", "two", "three")


def client(pod: str) -> ProcessSample:
    return process(pod, memory=1 << 20, client=True)


def server(pod: str | None = "daemon") -> ProcessSample:
    return process(pod, memory=1 << 10)


def shared() -> Book:
    """Return accounts of a GPU that three pods hold, with a first sample."""
    book = Book()
    book.hold(0, *map(holder, TENANTS))
    book.add(0, None, energy=0)
    return book


CLIENTS = [client(pod) for pod in TENANTS]


@pytest.mark.parametrize("owner", ["daemon", None])
def test_t4_usage_of_three_clients_and_their_server_is_unknown(owner: str | None) -> None:
    book = shared()
    for step in range(3):
        begin = 10 * step
        processes = [server(owner), *CLIENTS]
        book.sample(
            begin + 10,
            begin,
            *processes,
            busy=10 * S,
            energy=5000 * (step + 1),
            mps=True,
            used=1 << 30,
        )
    account = book.account()
    unknown = dict.fromkeys([*TENANTS, *([owner] if owner else [])])
    for what in ("busy_ns", "energy_mj"):
        assert by_pod(account.containers, what) == unknown
    assert (account.busy_ns, account.busy_unattributed_ns) == (30 * S, 30 * S)
    assert (account.energy_mj, account.energy_unattributed_mj) == (15_000, 15_000)
    held = by_pod(account.containers, "held_ns")
    assert all(abs((held[pod] or 0) - 10 * S) < 10 for pod in TENANTS)
    one = container(account, "one")
    assert one.memory_bytes == 1 << 20
    assert one.holding is not None
    assert (one.holding.busy_ns, one.holding.busy_mean_ppm, one.holding.energy_mj) == (None,) * 3


def test_t4_usage_of_a_pod_whose_clients_ended_between_samples_is_unknown() -> None:
    book = shared()
    account = book.sample(10, 0, server(), busy=10 * S, energy=5000, mps=True)
    assert by_pod(account.containers, "busy_ns") == dict.fromkeys(["daemon", *TENANTS])
    assert by_pod(account.containers, "energy_mj") == dict.fromkeys(["daemon", *TENANTS])
    assert account.busy_unattributed_ns == 10 * S


def test_t4_a_0_from_before_the_server_becomes_unknown() -> None:
    book = shared()
    book.sample(10, 0, *(process(pod, busy=0) for pod in TENANTS), busy=0, energy=0)
    assert container(book.account(), "one").busy_ns == 0
    book.sample(20, 10, server(), *CLIENTS, busy=10 * S, energy=5000, mps=True)
    book.sample(30, 20, busy=0, energy=5000)
    for pod in TENANTS:
        one = container(book.account(), pod)
        assert (one.busy_ns, one.energy_mj) == (None, None)
        assert one.holding is not None
        assert (one.holding.busy_ns, one.holding.energy_mj) == (None, None)


def test_t4_usage_that_was_known_before_is_kept() -> None:
    book = shared()
    book.sample(10, 0, process("one", busy=4 * S), busy=4 * S, energy=5000)
    before = container(book.account(), "one")
    book.sample(20, 10, server(), *CLIENTS, busy=10 * S, energy=9000, mps=True)
    after = container(book.account(), "one")
    assert (after.busy_ns, after.energy_mj) == (before.busy_ns, before.energy_mj) == (4 * S, 5000)


def test_t4_a_process_that_is_no_client_keeps_its_usage() -> None:
    book = shared()
    other = process("other", busy=3 * S)
    account = book.sample(10, 0, server(), *CLIENTS, other, busy=10 * S, energy=1000, mps=True)
    assert by_pod(account.containers, "busy_ns") == {
        "other": 3 * S,
        "daemon": None,
    } | dict.fromkeys(TENANTS)
    assert account.busy_unattributed_ns == 7 * S


def test_t4_a_single_container_with_its_own_server_gets_all_usage() -> None:
    book = Book()
    book.hold(0, holder("single"))
    own = [server("single"), client("single"), client("single")]
    book.sample(0, None, *own, energy=0, mps=True)
    account = book.sample(10, 0, *own, busy=9 * S, energy=1000, mps=True)
    assert by_pod(account.containers, "busy_ns") == {"single": 9 * S}
    assert by_pod(account.containers, "energy_mj") == {"single": 1000}


def test_t4_usage_is_unknown_if_other_containers_were_there_or_there_is_no_client() -> None:
    book = Book()
    book.sample(0, None, server("single"), client("single"), client("two"), mps=True)
    book.sample(10, 0, server("single"), client("single"), busy=9 * S, mps=True)
    book.sample(20, 10, server("single"), busy=9 * S, mps=True)
    assert by_pod(book.account().containers, "busy_ns") == {"single": None, "two": None}


def test_t4_usage_is_unknown_if_another_container_held_the_gpu_in_the_interval() -> None:
    book = Book()
    book.hold(0, holder("one"), holder("two"))
    book.sample(0, None)
    book.hold(3, holder("one"))
    book.accounts.expire(at(20))
    assert [one.subject.pod for one in book.usage().ended] == ["two"]
    account = book.sample(21, 0, server("one"), client("one"), busy=S, mps=True)
    assert container(account, "one").busy_ns is None
    assert account.busy_unattributed_ns == S


def test_t4_a_client_that_ended_gets_no_energy_of_its_last_interval() -> None:
    book = Book()
    book.sample(0, None, server(), client("one"), energy=0, mps=True)
    book.sample(10, 0, server(), client("one"), busy=9 * S, energy=5000, mps=True)
    book.sample(20, 10, server(), busy=9 * S, energy=9000, mps=True)
    assert by_pod(book.account().containers, "energy_mj") == {"one": None, "daemon": None}


def test_t4_a_client_of_unknown_owner_makes_the_usage_of_all_holders_unknown() -> None:
    book = shared()
    hidden = process(known=False, client=True)
    account = book.sample(10, 0, server(None), hidden, busy=9 * S, energy=1000, mps=True)
    for what in ("busy_ns", "energy_mj"):
        assert by_pod(account.containers, what) == dict.fromkeys(TENANTS)


@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from([*TENANTS, "daemon", None]), max_size=4),
            st.integers(0, 5 * S),
            st.integers(0, 5000),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_t4_parts_sum_to_the_total_and_clients_have_no_busy_time(
    story: list[tuple[list[str | None], int, int]],
) -> None:
    book, energy = shared(), 0
    account = book.account()
    for step, (pods, busy, used) in enumerate(story):
        energy += used
        processes = [server(), *(process(pod, client=pod is not None) for pod in pods)]
        # `sample` checks that the totals are the sums of their parts.
        account = book.sample(
            5 * step + 5, 5 * step, *processes, busy=busy, energy=energy, mps=True
        )
        clients = {pod for pod in pods if pod in TENANTS}
        if clients:
            found = by_pod(account.containers, "busy_ns")
            assert all(found[pod] is None for pod in clients)
    assert account.busy_ns == sum(busy for _, busy, _ in story)
    assert account.energy_mj == energy
