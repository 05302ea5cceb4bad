"""Tests of the accounting of connections and bytes: limits, and fair shares of the sources."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.http.client_shares import ClientConnection, ClientShares, State
from pipeline.http.limits import Limits
from tests.support.examples import examples


class FakeServer:
    """The connections of a server: a connection that is aborted ends immediately."""

    def __init__(self, **limits: int) -> None:
        self.limits = Limits(**limits)
        self.accounting = ClientShares(self.limits)
        self.connections: list[ClientConnection] = []
        self.ended: list[ClientConnection] = []

    def admit(self, source: str, state: State = "idle") -> ClientConnection:
        connection = self.accounting.admit(source)
        connection.abort = lambda: self._end(connection)
        self.connections.append(connection)
        self.accounting.set_state(connection, state)
        return connection

    def _end(self, connection: ClientConnection) -> None:
        if connection in self.connections:
            self.connections.remove(connection)
            self.ended.append(connection)
            self.accounting.remove(connection)

    def count_of(self, source: str) -> int:
        return sum(
            connection.source == source and not connection.reserved
            for connection in self.connections
        )


@pytest.mark.parametrize("state", ["idle", "reading", "queued", "working", "sending"])
async def test_r2_a_source_with_few_connections_is_always_accepted(state: State) -> None:
    """R2: in whatever state the connections of the source with most connections are."""
    server = FakeServer(connections=10, reserve=2)
    for _ in range(12):
        server.admit("many", state)
    for number in range(1, 5):
        assert not server.admit("few", state).reserved
        assert server.count_of("few") == number
    assert (server.count_of("few"), server.count_of("many")) == (4, 6)


async def test_sources_get_equal_shares_of_the_connections() -> None:
    server = FakeServer(connections=12)
    for source in ("a", "b", "c"):
        for _ in range(20):
            server.admit(source, "working")
    assert [server.count_of(source) for source in "abc"] == [4, 4, 4]


async def test_a_source_with_many_connections_evicts_no_other_source() -> None:
    server = FakeServer(connections=10)
    scraper = server.admit("few")
    for _ in range(50):
        server.admit("many")
    assert scraper in server.connections


async def test_of_one_source_the_connection_idle_for_longest_is_closed() -> None:
    server = FakeServer(connections=3)
    first, second, third = (server.admit("a") for _ in range(3))
    server.accounting.set_state(first, "idle")
    server.admit("a")
    assert server.ended == [second]
    server.accounting.set_state(third, "working")
    server.admit("a")
    assert server.ended == [second, first]


async def test_probes_use_the_reserve_if_all_connections_are_busy() -> None:
    server = FakeServer(connections=5, reserve=2)
    busy = [server.admit(f"{at}", "working") for at in range(5)]
    probes = [server.admit("1") for _ in range(4)]
    assert [connection.reserved for connection in (*busy, *probes)] == [False] * 5 + [True] * 4
    assert server.ended == probes[:2], "the newest probes are in the reserve"
    assert len(server.accounting) == 7


async def test_of_equal_connections_the_one_with_most_responses_is_closed() -> None:
    server = FakeServer(connections=3)
    connections = [server.admit(f"{at}", "working") for at in range(3)]
    for connection, answers in zip(connections, (1, 3, 2), strict=True):
        for _ in range(answers):
            server.accounting.set_state(connection, "idle")
        server.accounting.set_state(connection, "queued")
    server.admit("new")
    assert server.ended == [connections[1]]


@pytest.mark.parametrize("state", ["idle", "reading", "queued", "sending"])
async def test_r3_a_network_with_many_sources_does_not_exclude_another_network(
    state: State,
) -> None:
    server = FakeServer(connections=20, reserve=2)
    for at in range(100):
        server.admit(f"10.1.0.{at}", state)
    for at in range(5):
        assert not server.admit(f"10.2.0.{at}", "working").reserved
    for at in range(100):
        server.admit(f"10.1.1.{at}", state)
    assert sum(server.count_of(f"10.2.0.{at}") for at in range(5)) == 5


async def test_r7_a_lack_of_descriptors_lowers_the_limit_for_some_time() -> None:
    server = FakeServer()
    server.accounting.reduce_limit()
    for source in ("a", *["b"] * 30, "c"):
        server.admit(source)
    server.accounting.reduce_limit()
    assert {connection.source for connection in server.ended} == {"b"}
    left = len(server.connections)
    assert left < 32
    server.admit("d")
    assert len(server.connections) == left, "it replaces another connection"
    server.accounting.restore_limit()
    server.admit("e")
    assert len(server.connections) == left + 1


# Limits on bytes.


async def test_the_source_with_most_bytes_is_closed_to_free_bytes() -> None:
    server = FakeServer(bytes=700)
    many = [server.admit("many", "reading") for _ in range(3)]
    for connection in many:
        assert server.accounting.grow(connection, 300)
    few = server.admit("few", "reading")
    assert server.accounting.grow(few, 250)
    assert server.ended == many[:1]
    assert server.accounting.held == 850


async def test_the_largest_connection_is_closed_if_the_bytes_of_all_are_too_many() -> None:
    server = FakeServer(bytes=1000)
    for at in range(10):
        server.accounting.grow(server.admit(f"{at}", "reading"), 100)
    huge = server.admit("huge", "reading")
    assert server.accounting.grow(huge, 100_000), "a single one can have any size"
    assert server.accounting.grow(server.admit("small", "reading"), 100)
    assert server.ended == [huge]


async def test_a_page_that_is_sent_to_many_is_counted_once() -> None:
    server, page = FakeServer(bytes=1000), b"x" * 900
    sent = [
        server.accounting.sending(server.admit(f"{at}", "sending"), (page, b"")) for at in range(50)
    ]
    for one in sent:
        one.__enter__()
    assert (server.accounting.held, server.ended) == (900, [])
    for one in sent:
        one.__exit__(None, None, None)
    assert server.accounting.held == 0


async def test_r1_pages_that_clients_do_not_read_do_not_exclude_a_scraper() -> None:
    """R1: each client that does not read has a different page; a scraper still gets its page."""
    server = FakeServer(bytes=1000)
    for at in range(30):
        page = bytes(300)
        server.accounting.sending(server.admit(f"{at}", "sending"), (page,)).__enter__()
        assert server.accounting.held <= 1300
    scraper = server.admit("scraper", "sending")
    server.accounting.sending(scraper, (bytes(350),)).__enter__()
    assert scraper in server.connections


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["admit", "state", "head", "grow", "keep", "send", "leave"]),
        st.integers(0, 5),
        st.integers(0, 9),
    ),
    max_size=80,
)


@given(_STEPS)
@settings(max_examples=examples(100), deadline=None)
async def test_connections_and_bytes_are_counted_and_limited(
    steps: list[tuple[str, int, int]],
) -> None:
    server = FakeServer(connections=6, reserve=2, bytes=100)
    states: tuple[State, ...] = ("idle", "reading", "queued", "working", "sending")
    kept, sent = [], []
    for step, number, size in steps:
        if step == "admit":
            server.admit(f"{number}", states[size % 5])
            continue
        if not server.connections:
            continue
        connection = server.connections[number % len(server.connections)]
        match step:
            case "state":
                server.accounting.set_state(connection, states[size % 5])
            case "head":
                server.accounting.grow_head(connection, size)
                server.accounting.shrink_head(connection, size // 2)
            case "grow":
                before = connection.held
                grown = server.accounting.grow(connection, size * 6)
                assert connection.held == (before + size * 6 if grown else 0)
            case "keep" if connection.held > connection.head:
                kept.append(
                    server.accounting.count_until_released(
                        connection, connection.held - connection.head
                    )
                )
            case "send" if not connection.answer:
                sent.append(server.accounting.sending(connection, (b"x" * size, b"y" * number)))
                sent[-1].__enter__()
            case "leave":
                connection.abort()
            case _:
                pass
        counts = Counter(one.source for one in server.connections if not one.reserved)
        assert counts == Counter(one.source for one in server.accounting._clients)
        assert sum(counts.values()) <= 6
        assert len(server.accounting) == len(server.connections) <= 8
        heads = sum(one.head for one in server.connections)
        most = max((one.bytes for one in (*server.connections, *server.ended)), default=0)
        assert server.accounting.held <= 100 + most + heads
    for release in kept:
        release()
    for one in sent:
        one.__exit__(None, None, None)
    for connection in list(server.connections):
        connection.abort()
        server.accounting.shrink(connection, connection.held)
    for connection in server.ended:
        server.accounting.shrink(connection, connection.held)
    assert (len(server.accounting), server.accounting.held, server.accounting._holding) == (
        0,
        0,
        {},
    )
    assert not server.accounting._answers
