"""Events of the container runtime through NRI: containerd is real, the GPUs are simulated."""

import json
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.kube import cdi, device_nodes
from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.cri import Cri
from tests.e2e.kube.plugin import by_cdi, by_nodes
from tests.e2e.kube.pods import gpu_pod
from tests.e2e.podgpu import series
from tests.e2e.processes import get, wait_until
from tests.e2e.scenes import distinct
from tests.e2e.watched_podgpu import OFTEN, Owner, WatchedPodgpu, holders, watching

SCENE = distinct()
IDS = [gpu.uuid for gpu in SCENE.gpus]
MINORS = {gpu.uuid: gpu.minor or 0 for gpu in SCENE.gpus}
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
KOORDINATOR = "scheduling.koordinator.sh/device-allocated"
INJECTING: Mapping[str, Mapping[str, str]] = {**OFTEN, "nri": {"inject": "koordinator"}}

Watch = Callable[..., WatchedPodgpu]


@pytest.fixture
def watch(kube: Cluster, tmp_path: Path) -> Iterator[Watch]:
    """Start a podgpu that is stopped at the end."""
    with ExitStack() as stack:

        def start(
            *kinds: str, options: Mapping[str, Mapping[str, str]] = OFTEN, wait: bool = True
        ) -> WatchedPodgpu:
            podgpu = stack.enter_context(
                watching(kube, tmp_path / "podgpu", SCENE, kinds or ("nri",), options=options)
            )
            if wait:
                connected(podgpu)
            return podgpu

        yield start


@pytest.fixture
def cri(kube: Cluster, tmp_path: Path) -> Iterator[Cri]:
    """Direct access to containerd, with the kubelet stopped."""
    kube.kubelet.stop()
    with Cri(kube.cri_socket, tmp_path) as made:
        yield made


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Mapping[str, str]]:
    """Device nodes by device, in the form of the runtime's API."""
    return device_nodes.make(MINORS, tmp_path / "nodes")


Given = Mapping[str, Mapping[str, str]]


def connected(podgpu: WatchedPodgpu, times: int = 1) -> None:
    wait_until(lambda: podgpu.output().count("connected to containerd") >= times, "connected")


def owner(pod: str, container: str = "main") -> Owner:
    return Owner(pod, container, f"uid-{pod}", "ml")


def evidence(podgpu: WatchedPodgpu) -> set[str]:
    return {seen.evidence for seen in podgpu.holders()}


def test_a_pod_is_shown_within_a_second_of_its_start_and_end(
    kube: Cluster, watch: Watch, tmp_path: Path
) -> None:
    podgpu = watch()
    plugin = kube.plugin(IDS, form=by_nodes(MINORS, tmp_path / "nodes"))
    made = kube.run(gpu_pod("train-0", 2, namespace="ml"))
    mine = Owner("train-0", "main", str(made["metadata"]["uid"]), "ml")
    asked = plugin.asked[-1]
    assert podgpu.wait_owners({device: [mine] for device in asked}) < 1
    assert evidence(podgpu) == {"runtime_nodes"}
    kube.remove("train-0", "ml")
    assert podgpu.wait_owners({}) < 1
    assert podgpu.recorder.wrong_holders((device, mine) for device in asked) == set()


def test_devices_injected_by_cdi_name_have_cdi_evidence(kube: Cluster, watch: Watch) -> None:
    podgpu = watch()
    kind = "nvidia.com/gpu"
    cdi.write(kind, IDS)
    plugin = kube.plugin(IDS, form=by_cdi(kind))
    made = kube.run(gpu_pod("train-0", 1, namespace="ml"))
    mine = Owner("train-0", "main", str(made["metadata"]["uid"]), "ml")
    assert podgpu.wait_owners({plugin.asked[-1][0]: [mine]}) < 1
    assert evidence(podgpu) == {"runtime_cdi"}


class PageReader:
    """Reads the page continuously and records when containers appear and disappear."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self.appeared: dict[str, float] = {}
        self.vanished: dict[str, float] = {}

    def __enter__(self) -> "PageReader":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _read(self) -> None:
        shown: set[str] = set()
        while not self._over.is_set():
            body = get(self._port, "/metrics").body.decode()
            now = time.monotonic()
            lines = [line for line in body.splitlines() if line.startswith("podgpu_device_holder")]
            seen = {line.split('container="', 1)[1].split('"', 1)[0] for line in lines}
            self.appeared.update(dict.fromkeys(seen - shown, now))
            self.vanished.update(dict.fromkeys(shown - seen, now))
            shown = seen
            time.sleep(0.002)


def figures(values: list[float]) -> str:
    ordered = sorted(1000 * value for value in values)
    p99 = ordered[min(int(len(ordered) * 0.99), len(ordered) - 1)]
    return f"median {statistics.median(ordered):.1f}, p99 {p99:.1f}, max {ordered[-1]:.1f} ms"


@pytest.mark.alone
def test_two_hundred_containers_are_shown_within_the_latency_limits(
    cri: Cri, watch: Watch, given: Given
) -> None:
    podgpu = watch()
    pod = cri.run_pod("train-0")
    created, started, ended = {}, {}, {}
    with PageReader(podgpu.port) as reader:
        for number in range(200):
            name = f"c{number}"
            container = cri.create(pod, name, devices=[given[IDS[number % 4]]])
            created[name] = time.monotonic()
            cri.start(container)
            started[name] = time.monotonic()
            wait_until(lambda: name in reader.appeared, name, every=0.001)  # noqa: B023
            cri.stop(container)
            ended[name] = time.monotonic()
            wait_until(lambda: name in reader.vanished, name, every=0.001)  # noqa: B023
            cri.remove(container)
    after_create = [reader.appeared[name] - at for name, at in created.items()]
    after_start = [reader.appeared[name] - at for name, at in started.items()]
    after_end = [reader.vanished[name] - at for name, at in ended.items()]
    print(f"\ncreated -> page: {figures(after_create)}")
    print(f"started -> page: {figures(after_start)}")
    print(f"ended -> page:   {figures(after_end)}")
    # The limits include reserve for a busy machine.
    assert statistics.median(after_create) < 0.3
    assert statistics.median(after_start) < 0.2
    assert statistics.median(after_end) < 0.3


@pytest.mark.parametrize("count", [int(os.environ.get("PODGPU_NRI_PODS", "20"))])
def test_running_containers_are_reported_at_the_start(
    cri: Cri, watch: Watch, given: Given, count: int
) -> None:
    big = {f"FILLER_{n}": "x" * 100_000 for n in range(2)}
    for number in range(count):
        device = IDS[number % 4]
        cri.run(cri.run_pod(f"p{number}"), devices=[given[device]], env=big)
    began = time.monotonic()
    podgpu = watch()
    seconds = time.monotonic() - began
    expected: dict[str, list[Owner]] = {device: [] for device in IDS}
    for number in range(count):
        expected[IDS[number % 4]].append(owner(f"p{number}"))
    podgpu.wait_owners(expected)
    assert f"; it runs {count} containers" in podgpu.output()
    print(
        f"\n{count} pods with 200 kB of environment each: reported {seconds:.2f} s after the start"
    )


def test_the_runtime_is_killed_and_restarted(
    kube: Cluster, cri: Cri, watch: Watch, given: Given
) -> None:
    podgpu = watch()
    kept, gone = cri.run_pod("kept"), cri.run_pod("gone")
    cri.run(kept, devices=[given[IDS[0]]])
    container = cri.run(gone, devices=[given[IDS[1]]])
    podgpu.wait_owners({IDS[0]: [owner("kept")], IDS[1]: [owner("gone")]})
    kube.containerd.stop(signal.SIGKILL)
    wait_until(lambda: podgpu.value("podgpu_source_up", source="nri") == 0, "source down")
    assert podgpu.owners() == {IDS[0]: {owner("kept")}, IDS[1]: {owner("gone")}}
    os.kill(_first_pid(container), signal.SIGKILL)  # podgpu gets no event of this
    began = time.monotonic()
    kube.containerd.start()
    connected(podgpu, 2)
    print(f"\neverything reported {time.monotonic() - began:.2f} s after the runtime's start")
    podgpu.wait_owners({IDS[0]: [owner("kept")]})
    podgpu.wait_value("podgpu_source_up", 1, source="nri")


def test_podgpu_is_killed_and_restarted(cri: Cri, watch: Watch, given: Given) -> None:
    podgpu = watch()
    pod = cri.run_pod("train-0")
    first = cri.run(pod, "first", devices=[given[IDS[0]]])
    podgpu.wait_owners({IDS[0]: [owner("train-0", "first")]})
    assert podgpu.process is not None
    podgpu.process.stop(signal.SIGKILL)
    began = time.monotonic()
    cri.run(pod, "second", devices=[given[IDS[1]]])
    assert time.monotonic() - began < 2
    cri.stop(first)
    podgpu.start()
    podgpu.wait_owners({IDS[1]: [owner("train-0", "second")]})


@pytest.mark.parametrize("size", [100, 600_000], ids=["small", "larger than a socket's buffer"])
def test_the_runtime_continues_while_podgpu_is_stopped(
    cri: Cri, watch: Watch, given: Given, size: int
) -> None:
    """The runtime continues after its timeout, or as soon as podgpu continues."""
    podgpu = watch()
    pod = cri.run_pod("train-0")
    assert podgpu.process is not None
    chunks = {f"FILLER_{n}": "x" * 100_000 for n in range(size // 100_000)}
    os.kill(podgpu.process.pid, signal.SIGSTOP)
    frozen = time.monotonic()
    thaw = threading.Timer(5, lambda: os.kill(podgpu.process.pid, signal.SIGCONT))  # type: ignore[union-attr]
    thaw.start()
    try:
        cri.run(pod, devices=[given[IDS[0]]], env=chunks)
        took = time.monotonic() - frozen
    finally:
        thaw.join()
    print(f"\nthe container started {took:.2f} s after podgpu was frozen for 5 s")
    assert took < (3 if size < 200_000 else 8)
    podgpu.wait_owners({IDS[0]: [owner("train-0")]})
    assert podgpu.process.running


def _first_pid(container: str) -> int:
    """Return the pid of a container's first process, by its cgroup."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if container in (process / "cgroup").read_text():
                return int(process.name)
        except OSError:
            continue
    raise AssertionError(f"no process of {container}")


def environment(container: str) -> dict[str, str]:
    """Return the environment of the container's program, after runc has started it."""

    def given() -> dict[str, str]:
        raw = (Path("/proc") / str(_first_pid(container)) / "environ").read_bytes().decode()
        found = dict(pair.split("=", 1) for pair in raw.split("\0") if "=" in pair)
        own = "PATH" in found and not any(name.startswith("_LIBCONTAINER") for name in found)
        return found if own else {}

    return wait_until(given, "the container's own program")


def allocated(*minors: int) -> dict[str, str]:
    return {KOORDINATOR: json.dumps({"gpu": [{"minor": minor} for minor in minors]})}


@pytest.mark.parametrize(
    ("annotations", "env", "found"),
    [
        pytest.param({}, {}, None, id="none"),
        pytest.param({KOORDINATOR: '{"gpu": 7}'}, {}, None, id="invalid"),
        pytest.param({KOORDINATOR: "{" * 100_000}, {}, None, id="long and invalid"),
        pytest.param(allocated(1), {}, None, id="pod without known GPU request"),
        pytest.param(allocated(1), {VISIBLE: "2"}, "2", id="variable is already set"),
    ],
)
def test_no_variable_is_injected_for_an_invalid_annotation(
    cri: Cri,
    watch: Watch,
    annotations: Mapping[str, str],
    env: Mapping[str, str],
    found: str | None,
) -> None:
    watch(options=INJECTING)
    container = cri.run(cri.run_pod("train-0", annotations=annotations), env=env)
    assert environment(container).get(VISIBLE) == found


def test_without_the_inject_option_nothing_is_injected(cri: Cri, watch: Watch) -> None:
    podgpu = watch()
    container = cri.run(cri.run_pod("train-0", annotations=allocated(1)))
    assert VISIBLE not in environment(container)
    # The pod's request is not known here, so the annotation is no claim.
    podgpu.wait_owners({})


def test_containers_created_while_podgpu_registers_are_reported_once(
    cri: Cri, watch: Watch, given: Given
) -> None:
    pod = cri.run_pod("train-0")
    names = [f"c{n}" for n in range(20)]
    made: list[str] = []
    maker = threading.Thread(
        target=lambda: made.extend(cri.run(pod, name, devices=[given[IDS[0]]]) for name in names)
    )
    maker.start()
    podgpu = watch()
    maker.join()
    wait_until(
        lambda: podgpu.owners() == {IDS[0]: {owner("train-0", name) for name in names}},
        "all of them",
    )
    assert len(holders(series(get(podgpu.port, "/metrics")))) == len(names)
