"""What the plugin answers, and what it makes of what it is told."""

import pytest

from sources.nri import mux, ttrpc
from sources.nri.container_table import MAX_CONTAINERS, ContainerTable
from sources.nri.errors import ConnectionLostError, ProtocolError
from sources.nri.messages import METHODS
from sources.nri.plugin import Identity, Plugin
from tests.fakes.nri import wire
from tests.fakes.nri.connection import PLUGIN
from tests.fakes.nri.rules import HEADER
from tests.fakes.nri.runtime import EVENTS
from tests.sources.nri.talking import Talk, moment

POD = wire.pod()
MADE = wire.container()
RUNS = wire.container(pid=77, state=3)
ID = "train-0.main"


@pytest.fixture
def talk() -> Talk:
    made = Talk()
    assert made.call("Configure", wire.message({2: "containerd", 3: "2.4.2"}))[0] == 0
    return made


@pytest.fixture
def synchronized(talk: Talk) -> Talk:
    talk.synchronize()
    talk.news()
    return talk


def test_it_registers() -> None:
    talk = Talk()
    talk.plugin.register()
    ((channel, (header, body)),) = talk.sent
    assert channel == mux.RUNTIME
    assert HEADER.unpack(header)[1:] == (1, 1, 0)
    assert wire.one(body, 1) == b"nri.pkg.api.v1alpha1.Runtime"
    assert wire.one(body, 2) == b"RegisterPlugin"
    assert wire.fields(wire.one(body, 3)) == {1: [b"podgpu"], 2: [b"90"]}


def test_a_refusal_is_reported() -> None:
    talk = Talk()
    data = wire.message({1: wire.message({1: 2, 2: "invalid plugin\nname"})})
    with pytest.raises(
        ConnectionLostError, match="the runtime refuses the plugin: invalid plugin name"
    ):
        talk.feed(mux.RUNTIME, HEADER.pack(len(data), 1, 2, 0) + data)


def test_it_serves_before_its_own_call_is_answered() -> None:
    talk = Talk()
    talk.plugin.register()
    talk.sent.clear()
    assert talk.call("Configure") == (0, b"\x10\xd6\x0c")
    talk.feed(mux.RUNTIME, HEADER.pack(0, 1, 2, 0))


def test_every_method_of_the_service_is_answered(talk: Talk) -> None:
    """Methods that are not wanted too: an error could keep a pod from starting."""
    assert tuple(METHODS) == EVENTS
    for method in METHODS:
        assert talk.call(method, wire.subject(POD, RUNS)) == (0, b""), method
    assert talk.call("Shutdown") == (0, b"")
    for number in range(20):
        given_out = wire.message({1: number, 2: POD, 3: RUNS})
        assert talk.call("StateChange", given_out) == (0, b""), number


@pytest.mark.parametrize(
    ("service", "method", "text"),
    [
        (PLUGIN, "Reticulate", b"method Reticulate"),
        (PLUGIN, "", b"method "),
        ("nri.pkg.api.v2.Plugin", "Configure", b"service nri.pkg.api.v2.Plugin"),
    ],
)
def test_what_is_unknown_is_unimplemented(
    talk: Talk, service: str, method: str, text: bytes
) -> None:
    data = wire.message({1: service, 2: method})
    talk.feed(mux.PLUGIN, HEADER.pack(len(data), 9, 1, 0) + data)
    ((_, (_, body)),) = talk.sent
    status = wire.one(body, 1)
    assert (wire.number(status, 1), wire.one(status, 2)) == (12, text)


def test_other_types_of_message_are_passed_over(talk: Talk) -> None:
    for kind in (0, 2, 3, 7, 255):
        talk.feed(mux.PLUGIN, HEADER.pack(4, 9, kind, 0) + b"\xff\xff\xff\xff")
        talk.feed(mux.RUNTIME, HEADER.pack(4, 9, kind, 0) + b"\xff\xff\xff\xff")
    assert talk.sent == []


class TestAnswersComeFirst:
    """All of a node's containers wait for them."""

    @pytest.mark.parametrize(
        ("method", "payload"),
        [
            ("Configure", b"\x12\xff"),
            ("Synchronize", wire.message({2: [b"\xff"]})),
            ("PostStartContainer", b"\xff"),
            ("PostStartContainer", wire.subject(POD, b"\xff")),
            ("PostCreateContainer", wire.subject(b"\xff", MADE)),
            ("StopContainer", wire.subject(POD, b"\xff")),
            ("RemoveContainer", wire.subject(POD, b"\xff")),
            ("StopPodSandbox", wire.subject(b"\xff")),
            ("StateChange", b"\xff"),
            ("StateChange", wire.message({1: 7, 2: POD, 3: b"\xff"})),
        ],
    )
    def test_even_to_what_cannot_be_read(self, talk: Talk, method: str, payload: bytes) -> None:
        sent: list[tuple[int, ttrpc.Encoded]] = []
        plugin = Plugin(Identity("p", "90"), ContainerTable(moment), lambda *one: sent.append(one))
        data = wire.message({1: PLUGIN, 2: method, 3: payload})
        with pytest.raises(ProtocolError, match="sent an invalid"):
            plugin.feed(b"".join(mux.frames(1, HEADER.pack(len(data), 1, 1, 0), data)))
        ((_, (header, body)),) = sent
        assert HEADER.unpack(header)[1:] == (1, 2, 0)
        assert wire.number(wire.one(body, 1), 1) == 0


class TestSynchronize:
    def test_each_part_is_answered_in_kind(self, talk: Talk) -> None:
        assert talk.synchronize([POD], more=True) == (0, b"\x10\x01")
        assert talk.news().full_list is None
        assert not talk.plugin.synchronized
        assert talk.synchronize([], [RUNS]) == (0, b"")
        assert talk.plugin.synchronized
        assert list(talk.running()) == [ID]

    def test_a_container_may_come_before_its_pod(self, talk: Talk) -> None:
        talk.synchronize([], [RUNS], more=True)
        talk.synchronize([POD])
        assert list(talk.running()) == [ID]

    def test_empty_parts_cost_nothing(self, talk: Talk) -> None:
        for _ in range(5000):
            assert talk.synchronize(more=True) == (0, b"\x10\x01")
        talk.synchronize([POD], [RUNS])
        assert list(talk.running()) == [ID]

    def test_what_has_ended_or_has_no_pod_does_not_run(self, talk: Talk) -> None:
        ended = wire.container("train-0", "ended", state=4)
        lost = wire.container("elsewhere", "lost", pid=9, state=3)
        pause = wire.container(
            "train-0", "pause", pid=9, annotations={"io.kubernetes.cri.container-type": "sandbox"}
        )
        same = wire.container("train-0", "same", key="sandbox-train-0", pid=9)
        talk.synchronize([POD], [ended, lost, pause, same, RUNS, b"", wire.message({2: "x"})])
        assert list(talk.running()) == [ID]

    def test_what_is_reported_meanwhile_is_newer(self, talk: Talk) -> None:
        other = wire.container("train-0", "other", pid=5, state=3)
        talk.synchronize([POD], [MADE, other], more=True)
        talk.tell("PostStartContainer", POD, RUNS)
        talk.tell("StopContainer", POD, other)
        talk.synchronize()
        (one,) = talk.running().values()
        assert one.pid == 77

    def test_what_is_listed_may_be_newer(self, talk: Talk) -> None:
        talk.synchronize(more=True)
        talk.tell("PostCreateContainer", POD, MADE)
        talk.synchronize([POD], [RUNS])
        (one,) = talk.running().values()
        assert one.pid == 77

    def test_a_container_reported_twice_is_one(self, talk: Talk) -> None:
        talk.synchronize([POD], [MADE])
        talk.tell("PostStartContainer", POD, RUNS)
        news = talk.news()
        assert news.full_list is not None
        assert [one.pid for one in news.full_list] == [None]
        assert [one and one.pid for one in news.changes.values()] == [77]

    def test_a_second_list_takes_the_place_of_the_first(self, talk: Talk) -> None:
        talk.synchronize([POD], [RUNS])
        talk.news()
        talk.synchronize([POD], [wire.container("train-0", "other", pid=5)])
        assert list(talk.running()) == ["train-0.other"]

    def test_too_many_are_refused(self, talk: Talk) -> None:
        many = [wire.message({1: f"c{n}", 2: "s", 3: "n"}) for n in range(MAX_CONTAINERS + 1)]
        with pytest.raises(ConnectionLostError, match="more than 10000"):
            talk.synchronize([], many, more=True)


class TestEvents:
    @pytest.mark.parametrize("old", [False, True], ids=["methods", "StateChange"])
    def test_a_life(self, synchronized: Talk, old: bool) -> None:
        talk = synchronized

        def tell(event: str, container: bytes = b"") -> None:
            if old:
                number = EVENTS.index(event) + 1
                given_out = wire.message({1: number, 2: POD, 3: container})
                assert talk.call("StateChange", given_out) == (0, b"")
            else:
                talk.tell(event, POD, container)

        tell("PostCreateContainer", MADE)
        assert [one and one.pid for one in talk.news().changes.values()] == [None]
        tell("PostStartContainer", RUNS)
        assert [one and one.pid for one in talk.news().changes.values()] == [77]
        talk.tell("StopContainer", POD, RUNS)
        assert talk.news().changes == {ID: None}
        tell("RemoveContainer", RUNS)
        tell("StopPodSandbox")
        tell("RemovePodSandbox")
        assert talk.news().changes == {}

    @pytest.mark.parametrize("event", ["StopPodSandbox", "RemovePodSandbox"])
    def test_a_pod_takes_its_containers_along(self, synchronized: Talk, event: str) -> None:
        talk = synchronized
        other = wire.pod("train-1")
        talk.tell("PostStartContainer", POD, RUNS)
        talk.tell("PostStartContainer", other, wire.container("train-1", pid=9))
        talk.news()
        # Of a pod that is gone the runtime may know the channel alone.
        talk.tell(event, wire.message({1: "sandbox-train-0"}))
        assert talk.news().changes == {ID: None}

    def test_an_end_needs_no_pod(self, synchronized: Talk) -> None:
        synchronized.tell("PostStartContainer", POD, RUNS)
        synchronized.news()
        synchronized.tell("RemoveContainer", b"", wire.message({1: ID}))
        assert synchronized.news().changes == {ID: None}

    def test_the_end_of_one_that_no_one_reported_of_is_fine(self, synchronized: Talk) -> None:
        synchronized.tell("StopContainer", POD, RUNS)
        synchronized.tell("StopPodSandbox", wire.pod("nobody"))
        assert synchronized.news().changes == {}

    def test_a_start_that_is_reported_after_the_end_is_no_start(self, synchronized: Talk) -> None:
        talk = synchronized
        talk.tell("PostCreateContainer", POD, MADE)
        talk.tell("StopContainer", POD, RUNS)
        talk.tell("PostStartContainer", POD, RUNS)
        assert talk.news().changes == {ID: None}

    def test_a_start_of_what_has_ended_already_is_an_end(self, synchronized: Talk) -> None:
        talk = synchronized
        talk.tell("PostCreateContainer", POD, MADE)
        talk.tell("PostStartContainer", POD, wire.container(pid=77, state=4))
        assert talk.news().changes == {ID: None}

    def test_the_same_again_is_no_news(self, synchronized: Talk) -> None:
        synchronized.tell("PostStartContainer", POD, RUNS)
        synchronized.news()
        synchronized.tell("PostStartContainer", POD, RUNS)
        assert synchronized.news().changes == {}

    def test_the_newest_word_on_each_waits(self, synchronized: Talk) -> None:
        talk = synchronized
        for n in range(50):
            talk.tell("PostStartContainer", POD, wire.container(pid=n + 1, state=3))
        assert [one and one.pid for one in talk.news().changes.values()] == [50]

    def test_what_no_one_takes_is_bounded(self, synchronized: Talk) -> None:
        def churn() -> None:
            for n in range(MAX_CONTAINERS + 1):
                container = wire.container(key=f"c{n}", pid=7)
                synchronized.tell("PostStartContainer", POD, container)
                synchronized.tell("StopContainer", POD, container)

        with pytest.raises(ConnectionLostError, match="event loop has not processed"):
            churn()

    def test_more_than_a_node_has_are_refused(self, synchronized: Talk) -> None:
        def start() -> None:
            for n in range(MAX_CONTAINERS + 1):
                synchronized.tell("PostStartContainer", POD, wire.container(key=f"c{n}", pid=7))
                synchronized.news()

        with pytest.raises(ConnectionLostError, match="more than 10000 containers"):
            start()

    def test_names_too_long_to_be_true_are_passed_over(self, synchronized: Talk) -> None:
        talk, long = synchronized, "x" * 600
        talk.tell("PostStartContainer", wire.pod(long), RUNS)
        talk.tell("PostStartContainer", wire.pod(uid=long), RUNS)
        talk.tell("PostStartContainer", POD, wire.container(key=long, pid=7))
        talk.tell("PostStartContainer", POD, wire.container(name=long, key="c", pid=7))
        assert talk.news().changes == {}
