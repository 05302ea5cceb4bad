"""The responses of the plugin, and the containers that it knows from requests."""

import pytest

from sources.nri import container_table, messages, mux, ttrpc
from sources.nri.container_table import MAX_CONTAINERS, ContainerTable
from sources.nri.mux import ConnectionLostError
from sources.nri.options import Options
from sources.nri.plugin import Plugin
from tests.fakes.nri import wire
from tests.fakes.nri.connection import PLUGIN
from tests.fakes.nri.rules import HEADER
from tests.fakes.nri.runtime import EVENTS
from tests.sources.nri.plugin_connection import PluginConnection, instant_at

POD = wire.pod()
CREATED = wire.container()
RUNNING = wire.container(pid=77, state=3)
ID = "train-0.main"


@pytest.fixture
def connection() -> PluginConnection:
    new = PluginConnection()
    assert new.call("Configure", wire.message({2: "containerd", 3: "2.4.2"}))[0] == 0
    return new


@pytest.fixture
def synchronized(connection: PluginConnection) -> PluginConnection:
    connection.synchronize()
    connection.take_changes()
    return connection


def test_the_plugin_registers_with_its_name_and_index() -> None:
    connection = PluginConnection()
    connection.plugin.register()
    ((channel, (header, body)),) = connection.sent
    assert channel == mux.RUNTIME
    assert HEADER.unpack(header)[1:] == (1, 1, 0)
    assert wire.one(body, 1) == b"nri.pkg.api.v1alpha1.Runtime"
    assert wire.one(body, 2) == b"RegisterPlugin"
    assert wire.fields(wire.one(body, 3)) == {1: [b"podgpu"], 2: [b"90"]}


def test_a_refusal_of_the_runtime_is_reported() -> None:
    connection = PluginConnection()
    data = wire.message({1: wire.message({1: 2, 2: "invalid plugin\nname"})})
    with pytest.raises(
        ConnectionLostError, match="the runtime refuses the plugin: invalid plugin name"
    ):
        connection.feed(mux.RUNTIME, HEADER.pack(len(data), 1, 2, 0) + data)


def test_requests_are_answered_before_the_registration_is() -> None:
    connection = PluginConnection()
    connection.plugin.register()
    connection.sent.clear()
    assert connection.call("Configure") == (0, b"\x10\xd6\x0c")
    connection.feed(mux.RUNTIME, HEADER.pack(0, 1, 2, 0))


def test_every_method_of_the_service_gets_a_response(connection: PluginConnection) -> None:
    """Also methods that are not subscribed to: an error could prevent a pod from starting."""
    assert messages.EVENTS == EVENTS
    for method in EVENTS:
        assert connection.call(method, wire.subject(POD, RUNNING)) == (0, b""), method
    assert connection.call("Shutdown") == (0, b"")
    for number in range(20):
        state_change = wire.message({1: number, 2: POD, 3: RUNNING})
        assert connection.call("StateChange", state_change) == (0, b""), number


@pytest.mark.parametrize(
    ("service", "method", "text"),
    [
        (PLUGIN, "Reticulate", b"method Reticulate"),
        (PLUGIN, "", b"method "),
        ("nri.pkg.api.v2.Plugin", "Configure", b"service nri.pkg.api.v2.Plugin"),
    ],
)
def test_an_unknown_method_or_service_is_unimplemented(
    connection: PluginConnection, service: str, method: str, text: bytes
) -> None:
    data = wire.message({1: service, 2: method})
    connection.feed(mux.PLUGIN, HEADER.pack(len(data), 9, 1, 0) + data)
    ((_, (_, body)),) = connection.sent
    status = wire.one(body, 1)
    assert (wire.number(status, 1), wire.one(status, 2)) == (12, text)


def test_other_types_of_messages_are_ignored(connection: PluginConnection) -> None:
    for kind in (0, 2, 3, 7, 255):
        connection.feed(mux.PLUGIN, HEADER.pack(4, 9, kind, 0) + b"\xff\xff\xff\xff")
        connection.feed(mux.RUNTIME, HEADER.pack(4, 9, kind, 0) + b"\xff\xff\xff\xff")
    assert connection.sent == []


class TestResponsesToInvalidRequests:
    """All containers of the node wait for these responses."""

    @pytest.mark.parametrize(
        ("method", "payload"),
        [
            ("Configure", b"\x12\xff"),
            ("Synchronize", wire.message({2: [b"\xff"]})),
            ("PostStartContainer", b"\xff"),
            ("PostStartContainer", wire.subject(POD, b"\xff")),
            ("PostCreateContainer", wire.subject(b"\xff", CREATED)),
            ("StopContainer", wire.subject(POD, b"\xff")),
            ("RemoveContainer", wire.subject(POD, b"\xff")),
            ("StopPodSandbox", wire.subject(b"\xff")),
            ("StateChange", b"\xff"),
            ("StateChange", wire.message({1: 7, 2: POD, 3: b"\xff"})),
        ],
    )
    def test_an_invalid_request_gets_a_response_before_the_error(
        self, connection: PluginConnection, method: str, payload: bytes
    ) -> None:
        sent: list[tuple[int, ttrpc.Encoded]] = []
        plugin = Plugin(Options(), ContainerTable(instant_at), lambda *one: sent.append(one))
        data = wire.message({1: PLUGIN, 2: method, 3: payload})
        with pytest.raises(ConnectionLostError, match="sent an invalid"):
            plugin.feed(b"".join(mux.frames(1, HEADER.pack(len(data), 1, 1, 0), data)))
        ((_, (header, body)),) = sent
        assert HEADER.unpack(header)[1:] == (1, 2, 0)
        assert wire.number(wire.one(body, 1), 1) == 0


class TestSynchronize:
    def test_each_part_of_the_list_gets_a_response(self, connection: PluginConnection) -> None:
        assert connection.synchronize([POD], more=True) == (0, b"\x10\x01")
        assert connection.take_changes().full_list is None
        assert not connection.plugin.synchronized
        assert connection.synchronize([], [RUNNING]) == (0, b"")
        assert connection.plugin.synchronized
        assert list(connection.running()) == [ID]

    def test_a_container_may_come_before_its_pod(self, connection: PluginConnection) -> None:
        connection.synchronize([], [RUNNING], more=True)
        connection.synchronize([POD])
        assert list(connection.running()) == [ID]

    @pytest.mark.slow
    def test_empty_parts_are_not_kept(self, connection: PluginConnection) -> None:
        for _ in range(5000):
            assert connection.synchronize(more=True) == (0, b"\x10\x01")
        connection.synchronize([POD], [RUNNING])
        assert list(connection.running()) == [ID]

    def test_ended_containers_and_containers_without_pod_are_not_running(
        self, connection: PluginConnection
    ) -> None:
        ended = wire.container("train-0", "ended", state=4)
        without_pod = wire.container("elsewhere", "lost", pid=9, state=3)
        pause = wire.container(
            "train-0", "pause", pid=9, annotations={"io.kubernetes.cri.container-type": "sandbox"}
        )
        same = wire.container("train-0", "same", key="sandbox-train-0", pid=9)
        connection.synchronize(
            [POD], [ended, without_pod, pause, same, RUNNING, b"", wire.message({2: "x"})]
        )
        assert list(connection.running()) == [ID]

    def test_events_during_synchronization_are_newer_than_the_list(
        self, connection: PluginConnection
    ) -> None:
        other = wire.container("train-0", "other", pid=5, state=3)
        connection.synchronize([POD], [CREATED, other], more=True)
        connection.send_event("PostStartContainer", POD, RUNNING)
        connection.send_event("StopContainer", POD, other)
        connection.synchronize()
        (one,) = connection.running().values()
        assert one.pid == 77

    def test_the_list_may_be_newer_than_events_during_synchronization(
        self, connection: PluginConnection
    ) -> None:
        connection.synchronize(more=True)
        connection.send_event("PostCreateContainer", POD, CREATED)
        connection.synchronize([POD], [RUNNING])
        (one,) = connection.running().values()
        assert one.pid == 77

    def test_a_container_in_the_list_and_in_an_event_is_reported_once_each(
        self, connection: PluginConnection
    ) -> None:
        connection.synchronize([POD], [CREATED])
        connection.send_event("PostStartContainer", POD, RUNNING)
        changes = connection.take_changes()
        assert changes.full_list is not None
        assert [one.pid for one in changes.full_list] == [77]
        assert changes.changes == {}

    def test_a_second_list_replaces_the_first(self, connection: PluginConnection) -> None:
        connection.synchronize([POD], [RUNNING])
        connection.take_changes()
        connection.synchronize([POD], [wire.container("train-0", "other", pid=5)])
        assert list(connection.running()) == ["train-0.other"]

    def test_too_many_containers_in_a_list_end_the_connection(
        self, connection: PluginConnection
    ) -> None:
        many = [wire.message({1: f"c{n}", 2: "s", 3: "n"}) for n in range(MAX_CONTAINERS + 1)]
        with pytest.raises(ConnectionLostError, match="more than 10000"):
            connection.synchronize([], many, more=True)


class TestEvents:
    @pytest.mark.parametrize("old", [False, True], ids=["methods", "StateChange"])
    def test_the_events_of_a_container_from_creation_to_removal(
        self, synchronized: PluginConnection, old: bool
    ) -> None:
        connection = synchronized

        def send_event(event: str, container: bytes = b"") -> None:
            if old:
                number = EVENTS.index(event) + 1
                state_change = wire.message({1: number, 2: POD, 3: container})
                assert connection.call("StateChange", state_change) == (0, b"")
            else:
                connection.send_event(event, POD, container)

        send_event("PostCreateContainer", CREATED)
        assert [one and one.pid for one in connection.take_changes().changes.values()] == [None]
        send_event("PostStartContainer", RUNNING)
        assert [one and one.pid for one in connection.take_changes().changes.values()] == [77]
        connection.send_event("StopContainer", POD, RUNNING)
        assert connection.take_changes().changes == {ID: None}
        send_event("RemoveContainer", RUNNING)
        send_event("StopPodSandbox")
        send_event("RemovePodSandbox")
        assert connection.take_changes().changes == {}

    @pytest.mark.parametrize("event", ["StopPodSandbox", "RemovePodSandbox"])
    def test_the_end_of_a_pod_ends_its_containers(
        self, synchronized: PluginConnection, event: str
    ) -> None:
        connection = synchronized
        other = wire.pod("train-1")
        connection.send_event("PostStartContainer", POD, RUNNING)
        connection.send_event("PostStartContainer", other, wire.container("train-1", pid=9))
        connection.take_changes()
        # The runtime may know only the sandbox id of a pod that is gone.
        connection.send_event(event, wire.message({1: "sandbox-train-0"}))
        assert connection.take_changes().changes == {ID: None}

    def test_the_end_of_a_container_needs_no_pod(self, synchronized: PluginConnection) -> None:
        synchronized.send_event("PostStartContainer", POD, RUNNING)
        synchronized.take_changes()
        synchronized.send_event("RemoveContainer", b"", wire.message({1: ID}))
        assert synchronized.take_changes().changes == {ID: None}

    def test_the_end_of_an_unknown_container_is_ignored(
        self, synchronized: PluginConnection
    ) -> None:
        synchronized.send_event("StopContainer", POD, RUNNING)
        synchronized.send_event("StopPodSandbox", wire.pod("unknown"))
        assert synchronized.take_changes().changes == {}

    def test_a_start_that_arrives_after_the_end_is_ignored(
        self, synchronized: PluginConnection
    ) -> None:
        connection = synchronized
        connection.send_event("PostCreateContainer", POD, CREATED)
        connection.send_event("StopContainer", POD, RUNNING)
        connection.send_event("PostStartContainer", POD, RUNNING)
        assert connection.take_changes().changes == {ID: None}

    def test_a_start_with_an_ended_state_is_an_end(self, synchronized: PluginConnection) -> None:
        connection = synchronized
        connection.send_event("PostCreateContainer", POD, CREATED)
        connection.send_event("PostStartContainer", POD, wire.container(pid=77, state=4))
        assert connection.take_changes().changes == {ID: None}

    def test_the_same_event_again_is_no_change(self, synchronized: PluginConnection) -> None:
        synchronized.send_event("PostStartContainer", POD, RUNNING)
        synchronized.take_changes()
        synchronized.send_event("PostStartContainer", POD, RUNNING)
        assert synchronized.take_changes().changes == {}

    def test_only_the_newest_change_of_a_container_is_kept(
        self, synchronized: PluginConnection
    ) -> None:
        connection = synchronized
        for n in range(50):
            connection.send_event("PostStartContainer", POD, wire.container(pid=n + 1, state=3))
        assert [one and one.pid for one in connection.take_changes().changes.values()] == [50]

    def test_too_many_pending_changes_end_the_connection(
        self, synchronized: PluginConnection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(container_table, "MAX_CONTAINERS", 100)

        def churn(count: int) -> None:
            for n in range(count):
                container = wire.container(key=f"c{n}", pid=7)
                synchronized.send_event("PostStartContainer", POD, container)
                synchronized.send_event("StopContainer", POD, container)

        churn(100)
        with pytest.raises(ConnectionLostError, match="more than 100 changes of containers wait"):
            churn(101)

    def test_too_many_running_containers_end_the_connection(
        self, synchronized: PluginConnection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(container_table, "MAX_CONTAINERS", 100)

        def start(count: int) -> None:
            for n in range(count):
                synchronized.send_event(
                    "PostStartContainer", POD, wire.container(key=f"c{n}", pid=7)
                )
                synchronized.take_changes()

        start(100)
        with pytest.raises(ConnectionLostError, match="more than 100 containers"):
            start(101)

    def test_events_with_names_that_are_too_long_are_ignored(
        self, synchronized: PluginConnection
    ) -> None:
        connection, long = synchronized, "x" * 600
        connection.send_event("PostStartContainer", wire.pod(long), RUNNING)
        connection.send_event("PostStartContainer", wire.pod(uid=long), RUNNING)
        connection.send_event("PostStartContainer", POD, wire.container(key=long, pid=7))
        connection.send_event("PostStartContainer", POD, wire.container(name=long, key="c", pid=7))
        assert connection.take_changes().changes == {}
