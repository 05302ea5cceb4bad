"""A plugin without a socket, with the other end of its connection."""

from dataclasses import dataclass, field

from pipeline.model import Instant, RunningContainer
from sources.nri import mux, ttrpc
from sources.nri.container_table import ContainerChanges, ContainerTable
from sources.nri.options import Options
from sources.nri.plugin import Inject, Plugin
from tests.fakes.nri import wire
from tests.fakes.nri.connection import PLUGIN
from tests.fakes.nri.rules import HEADER


def instant_at(wall_ns: int) -> Instant:
    return Instant(wall_ns, wall_ns)


@dataclass
class PluginConnection:
    """A connection to a plugin, as a runtime uses it."""

    inject: Inject | None = None
    sent: list[tuple[int, ttrpc.Encoded]] = field(default_factory=list)
    number: int = -1

    def __post_init__(self) -> None:
        self.table = ContainerTable(instant_at)
        self.plugin = Plugin(Options(), self.table, self.send, self.inject)

    def send(self, channel: int, message: ttrpc.Encoded) -> None:
        self.sent.append((channel, message))

    def feed(self, channel: int, message: bytes) -> None:
        self.plugin.feed(b"".join(mux.frames(channel, message[:10], message[10:])))

    def call(self, method: str, payload: bytes = b"", service: str = PLUGIN) -> tuple[int, bytes]:
        """Call a method of the plugin; return the status code and the payload of the response."""
        self.number += 2
        data = wire.message({1: service, 2: method, 3: payload, 4: 1_999_000_000})
        self.feed(mux.PLUGIN, HEADER.pack(len(data), self.number, 1, 0) + data)
        channel, (header, body) = self.sent.pop()
        assert self.sent == []
        assert channel == mux.PLUGIN
        assert HEADER.unpack(header) == (len(body), self.number, 2, 0)
        return wire.number(wire.one(body, 1), 1), wire.one(body, 2)

    def synchronize(
        self,
        pods: list[bytes] | None = None,
        containers: list[bytes] | None = None,
        *,
        more: bool = False,
    ) -> tuple[int, bytes]:
        payload = wire.message({1: pods or [], 2: containers or [], 3: more})
        return self.call("Synchronize", payload)

    def send_event(self, event: str, pod: bytes, container: bytes = b"") -> None:
        assert self.call(event, wire.subject(pod, container)) == (0, b"")

    def take_changes(self) -> ContainerChanges:
        return self.table.take_changes()

    def running(self) -> dict[str, RunningContainer]:
        """Return all running containers; no changes may have been taken before."""
        changes = self.take_changes()
        assert changes.full_list is not None
        return {one.subject.container_id: one for one in changes.full_list}
