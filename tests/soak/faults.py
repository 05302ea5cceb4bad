"""The faults of the soak test: each begins, lasts, and ends."""

import random
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from tests.fakes.nvml import Field, Gpu, Load, Proc
from tests.soak.receiver import MOODS
from tests.soak.world import GPUS, PODS, World

Undo = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault.

    Attributes:
        name: its name in the output.
        apply: begins the fault, and returns the function that ends it.
        seconds: its longest duration; the shortest is a fifth of it.
        places: the affected parts; each part has at most one fault at a time.
        unresponsive: whether podgpu need not respond during the fault.
        mount: whether it needs a separate disk.
    """

    name: str
    apply: Callable[[World], Undo]
    seconds: float
    places: frozenset[str]
    unresponsive: bool = False
    mount: bool = False


def _nothing() -> None:
    pass


# Files that are watched.


def _config(world: World) -> Undo:
    sources, sinks, chance = world.settings["sources"], world.settings["sinks"], world.chance
    sources["gpus"]["interval"] = chance.choice(["500ms", "1s"])
    sinks["lines"]["telemetry_interval"] = chance.choice(["5s", "10s"])
    sinks["file"]["interval"] = chance.choice(["1s", "2s"])
    for name in world.receivers:
        sinks[name]["max_message_size"] = chance.choice(["64KiB", "1MiB"])
    world.configure()
    if chance.random() < 0.5:
        world.process.send(signal.SIGHUP)
    return _nothing


def _config_sink(world: World) -> Undo:
    name = world.chance.choice(["file", "list", "lines"])
    taken = world.settings["sinks"].pop(name)
    world.configure()

    def undo() -> None:
        world.settings["sinks"][name] = taken
        world.configure()

    return undo


def _config_broken(world: World) -> Undo:
    broken = world.chance.choice(["", "sources: [", "\x00", "sources: {x: {kind: nvml, y: 1}}\n"])
    world.write(world.config, broken)
    return world.configure


def _config_gone(world: World) -> Undo:
    world.config.unlink()
    return world.configure


def _podlist(world: World) -> Undo:
    holders = {gpu: world.chance.choice([*PODS, ""]) for gpu in range(GPUS)}
    world.hold({gpu: pod for gpu, pod in holders.items() if pod})
    return _nothing


def _podlist_broken(world: World) -> Undo:
    _, holders = world.holding[-1]
    world.write(world.podlist, world.chance.choice(["[{", '{"a": 1}', "\xff"]))
    return partial(world.hold, holders)


def _counters(world: World) -> Undo:
    world.counters(world.chance.randrange(2))
    return _nothing


def _counters_broken(world: World) -> Undo:
    world.write(world.folder / "counters.csv", "no field, gauge\n")
    return partial(world.counters, 0)


def _web(world: World) -> Undo:
    users = tuple(f"user{at}" for at in range(world.chance.randrange(3)))
    world.web(tls=world.chance.random() < 0.5, users=users)
    return _nothing


def _web_broken(world: World) -> Undo:
    world.write(world.folder / "web.yml", "tls_server_config: 7\n")
    return partial(world.web, tls=world.chance.random() < 0.5)


def _certificate(world: World) -> Undo:
    world.certify()
    return _nothing


def _token(world: World) -> Undo:
    world.token(f"token {world.chance.random()}")
    return _nothing


def _token_gone(world: World) -> Undo:
    (world.folder / "token").unlink()
    return partial(world.token, "back")


# The receivers.


def _receiver_killed(name: str) -> Callable[[World], Undo]:
    def apply(world: World) -> Undo:
        world.receivers[name].kill()
        return world.receivers[name].start

    return apply


def _receiver_failing(name: str) -> Callable[[World], Undo]:
    def apply(world: World) -> Undo:
        world.receivers[name].set_mood(world.chance.choice(MOODS))
        return partial(world.receivers[name].set_mood, "well")

    return apply


# The host.


def _disk_full(world: World) -> Undo:
    world.fill()
    return world.clear


def _clock(world: World) -> Undo:
    world.step_clock(world.chance.choice([-1, 1]) * world.chance.choice([0.5, 5, 600, 7200]))
    return _nothing


def _descriptors(world: World) -> Undo:
    pid = world.process.pid
    world.limit_descriptors(world.chance.randrange(3))

    def undo() -> None:
        if world.process.pid == pid and world.process.running:
            world.limit_descriptors(None)

    return undo


# The process.


def _stopped(world: World) -> Undo:
    world.process.send(signal.SIGSTOP)
    return partial(world.process.send, signal.SIGCONT)


def _killed(world: World) -> Undo:
    world.kill()
    return world.start


def _restarted(world: World) -> Undo:
    status = world.stop()
    assert status == 0, f"status {status} at SIGTERM:\n{world.log_text()[-3000:]}"
    return world.start


# The GPUs.


def _some(world: World) -> set[int]:
    return {world.chance.randrange(GPUS)} | {
        at for at in range(GPUS) if world.chance.random() < 0.3
    }


def _played(name: str, change: Callable[[Gpu], Gpu]) -> Callable[[World], Undo]:
    def apply(world: World) -> Undo:
        world.play(name, change, _some(world))
        return partial(world.play, name, None, set())

    return apply


def _lost(gpu: Gpu) -> Gpu:
    return replace(gpu, lost=True)


def _energy(value: int) -> Callable[[Gpu], Gpu]:
    def change(gpu: Gpu) -> Gpu:
        return replace(
            gpu, values={**gpu.values, "energy": value}, fields={83: Field(value, "ull")}
        )

    return change


def _too_busy(gpu: Gpu) -> Gpu:
    return replace(gpu, loads=[Load(each.pid, 180) for each in gpu.loads])


def _too_large(gpu: Gpu) -> Gpu:
    return replace(gpu, processes=[Proc(each.pid, 1 << 60) for each in gpu.processes])


def _slow(gpu: Gpu) -> Gpu:
    return replace(gpu, block={"nvmlDeviceGetPowerUsage": 4.0})


def _refusing(gpu: Gpu) -> Gpu:
    return replace(gpu, errors={"nvmlDeviceGetTemperature": 999, "nvmlDeviceGetMemoryInfo": 999})


def _driver(**changes: Any) -> Callable[[World], Undo]:
    def apply(world: World) -> Undo:
        world.play_node(**changes)
        return world.play_node

    return apply


def _xid(world: World) -> Undo:
    world.xid(world.chance.randrange(GPUS), world.chance.choice([13, 31, 43, 63]))
    return _nothing


# Clients.

_CONNECTIONS: Final = 150
_CUT = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 4000
_PASSWORD = b"Basic c29hazp3cm9uZw=="
_WRONG = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: " + _PASSWORD + b"\r\n\r\n"
_MANY = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50
_NOISE = bytes(range(256)) * 20


def _hostile_clients(world: World) -> Undo:
    """Open many connections from other addresses than the checker's; send and never read."""
    stop, chance = threading.Event(), random.Random(world.chance.random())

    def attack() -> None:
        open_ones: list[socket.socket] = []
        while not stop.is_set():
            client = socket.socket()
            client.setblocking(False)
            try:
                client.bind((f"127.0.{chance.randrange(1, 5)}.{chance.randrange(1, 250)}", 0))
                client.connect_ex(("127.0.0.1", world.port))
                time.sleep(0.005)
                client.send(chance.choice([_CUT, _WRONG, _MANY, _NOISE]))
            except OSError:
                client.close()
                continue
            open_ones.append(client)
            if len(open_ones) > _CONNECTIONS:
                open_ones.pop(chance.randrange(len(open_ones))).close()
            time.sleep(0.005)
        for each in open_ones:
            each.close()

    thread = threading.Thread(target=attack, daemon=True)
    thread.start()

    def undo() -> None:
        stop.set()
        thread.join()

    return undo


def _at(*places: str) -> frozenset[str]:
    return frozenset(places)


_STARTING: Final = _at("process", "config", "counters", "web", "clock")
"""Parts without another fault at a start: podgpu ends with status 2 if a file is invalid, and
the fake driver uses the clock of the start."""

FAULTS: Final = (
    Fault("configuration changed", _config, 0, _at("config")),
    Fault("sink removed", _config_sink, 10, _at("config")),
    Fault("configuration invalid", _config_broken, 5, _at("config")),
    Fault("configuration removed", _config_gone, 5, _at("config")),
    Fault("podlist changed", _podlist, 0, _at("podlist")),
    Fault("podlist invalid", _podlist_broken, 3, _at("podlist")),
    Fault("counters changed", _counters, 0, _at("counters")),
    Fault("counters invalid", _counters_broken, 5, _at("counters")),
    Fault("web config changed", _web, 0, _at("web")),
    Fault("web config invalid", _web_broken, 5, _at("web")),
    Fault("certificate renewed", _certificate, 0, _at("web")),
    Fault("token changed", _token, 0, _at("token")),
    Fault("token removed", _token_gone, 5, _at("token")),
    Fault("receiver killed", _receiver_killed("push"), 20, _at("receiver")),
    Fault("receiver failing", _receiver_failing("push"), 20, _at("receiver")),
    Fault("gRPC receiver killed", _receiver_killed("call"), 20, _at("gRPC receiver")),
    Fault("gRPC receiver failing", _receiver_failing("call"), 20, _at("gRPC receiver")),
    Fault("disk full", _disk_full, 15, _at("disk"), mount=True),
    Fault("clock stepped", _clock, 0, _at("clock")),
    Fault("descriptors short", _descriptors, 6, _at("process"), unresponsive=True),
    Fault("SIGSTOP", _stopped, 8, _at("process"), unresponsive=True),
    Fault("SIGKILL", _killed, 3, _STARTING, unresponsive=True),
    Fault("restart", _restarted, 3, _STARTING, unresponsive=True),
    Fault("GPU lost", _played("lost", _lost), 8, _at("gpus")),
    Fault("energy counter at 0", _played("energy", _energy(0)), 5, _at("gpus")),
    Fault(
        "energy counter at an earlier value",
        _played("energy", _energy(808_334_905)),
        5,
        _at("gpus"),
    ),
    Fault("more than busy", _played("busy", _too_busy), 5, _at("gpus")),
    Fault("more memory than there is", _played("memory", _too_large), 5, _at("gpus")),
    Fault("GPU slow", _played("slow", _slow), 8, _at("gpus")),
    Fault("GPU refuses", _played("refuses", _refusing), 5, _at("gpus")),
    Fault("driver unloaded", _driver(init_error=9, errors={"*": 9}), 8, _at("driver")),
    Fault("driver with unknown errors", _driver(errors={"*": 999}), 8, _at("driver")),
    Fault("XID", _xid, 0, _at("gpus")),
    Fault("hostile clients", _hostile_clients, 12, _at("clients")),
)
