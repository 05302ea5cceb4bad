"""Attacks by a thousand connections on a real podgpu, without GPU and cluster.

Probes, scrapes and the scheduler get responses meanwhile, and memory hardly grows.
"""

import base64
import resource
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import bcrypt
import pytest
import yaml

from tests.e2e.node import PODGPU
from tests.e2e.processes import Process, free_ports, wait_until
from tests.support.attackers import Times, resident, under_attack

pytestmark = pytest.mark.alone

CONNECTIONS = 1000
SECONDS = 8.0
MEMORY = 40_000_000
USER, PASSWORD = "prometheus", "only for this test"
AUTHORIZATION = {
    "Authorization": "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
}
QUESTION = b'{"Pod": {"metadata": {"name": "p"}}, "NodeNames": ["node-1"]}'


class Victim:
    """A podgpu that plays the built-in recording, or a scheduler extender."""

    def __init__(self, folder: Path, command: Sequence[str | Path], port: int) -> None:
        self.port = port
        self.process = Process(command, folder / "podgpu.log", {"LD_LIBRARY_PATH": ""})
        self.process.wait_for_answer(port, "/healthz")
        self.idle = self.most = 0

    def settle(self) -> None:
        """Measure the idle memory after some requests."""
        for _ in range(3):
            for path in ("/healthz", "/metrics"):
                Times().ask(self.port, path, headers=AUTHORIZATION)
            time.sleep(0.3)
        self.idle = self.most = resident(self.process.pid)

    @contextmanager
    def weighed(self) -> Iterator[None]:
        """Measure the maximum memory during the block."""
        done = threading.Event()

        def look() -> None:
            while not done.wait(0.05):
                self.most = max(self.most, resident(self.process.pid))

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


@contextmanager
def playing(folder: Path, web: str = "") -> Iterator[Victim]:
    (port,) = free_ports(1)
    config = {
        "sources": {"recording": {"kind": "replay", "path": "builtin:demo", "loop": True}},
        "sinks": {"metrics": {"kind": "prometheus", "listen": f"127.0.0.1:{port}"}},
    }
    if web:
        (folder / "web.yml").write_text(web)
        config["http"] = {"web_config": str(folder / "web.yml")}
    (folder / "podgpu.yaml").write_text(yaml.safe_dump(config))
    victim = Victim(folder, [PODGPU, "run", "-c", folder / "podgpu.yaml"], port)
    try:
        wait_until(
            lambda: b"podgpu_gpu_up{" in Times().ask(port, "/metrics", headers=AUTHORIZATION),
            "the recording's GPUs",
            seconds=20,
        )
        victim.settle()
        yield victim
    finally:
        assert victim.process.stop() == 0


@contextmanager
def extending(folder: Path) -> Iterator[Victim]:
    (port,) = free_ports(1)
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    user = {"name": "u", "user": {"token": "t"}}
    kubeconfig = {"current-context": "c", "clusters": [cluster]}
    kubeconfig |= {"contexts": [context], "users": [user]}
    (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    listen, credentials = f"127.0.0.1:{port}", folder / "kubeconfig"
    command: list[str | Path] = [PODGPU, "extender", "--listen", listen]
    command += ["--kubeconfig", credentials]
    victim = Victim(folder, command, port)
    try:
        victim.settle()
        yield victim
    finally:
        assert victim.process.stop() == 0


@pytest.fixture(autouse=True)
def descriptors() -> Iterator[None]:
    """Raise the limit of file descriptors to the hard limit."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def well(title: str, *asked: Times) -> None:
    """Assert that all requests got responses, most of them within a second.

    The attackers use as much CPU as podgpu, so some responses may be late.
    """
    for times in asked:
        print(f"{title}: {times}")
        assert not times.failed, title
        late = sum(took > 1 for took in times.took)
        assert late <= 1 + len(times.took) // 4, title
        assert max(times.took) < 5, title


@pytest.mark.parametrize("sources", [1, 200])
@pytest.mark.parametrize("kind", ["unread", "pipelined", "halves", "idle", "churn", "trickle"])
def test_probes_and_scrapes_are_answered_during_an_attack(
    kind: str, sources: int, tmp_path: Path
) -> None:
    with playing(tmp_path) as victim:
        probes, scrapes, pages = Times(), Times(), list[bytes]()
        attack = under_attack(kind, victim.port, connections=CONNECTIONS, sources=sources)
        with attack, victim.weighed():
            time.sleep(1)
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                probes.ask(victim.port, "/healthz")
                pages.append(scrapes.ask(victim.port, "/metrics"))
                time.sleep(0.3)
        print(f"{kind} from {sources}: +{(victim.most - victim.idle) / 1e6:.0f} MB")
        assert victim.most - victim.idle < MEMORY
        well(f"{kind} from {sources}", probes, scrapes)
        assert all(b"podgpu_gpu_up{" in page for page in pages), "no reading is outdated"


def test_a_probe_from_the_address_of_the_attack_is_answered(tmp_path: Path) -> None:
    with playing(tmp_path) as victim:
        probes = Times()
        with under_attack("unread", victim.port, connections=CONNECTIONS, sources=1):
            time.sleep(1)
            for _ in range(10):
                probes.ask(victim.port, "/healthz", source="127.1.0.2")
                time.sleep(0.3)
        well("from the same address", probes)


@pytest.mark.parametrize("sources", [4, 50, 1000])
def test_r3_password_guesses_lock_no_one_out(sources: int, tmp_path: Path) -> None:
    """The first valid scrape may come after the guesses have begun."""
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(10)).decode()
    with playing(tmp_path, f"basic_auth_users:\n  {USER}: {hashed}\n") as victim:
        # A new hash invalidates the cache of valid passwords.
        hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(10)).decode()
        probes, first, scrapes = Times(), Times(), Times()
        attack = under_attack("guesses", victim.port, connections=CONNECTIONS, sources=sources)
        with attack, victim.weighed():
            time.sleep(1)
            (tmp_path / "web.yml").write_text(f"basic_auth_users:\n  {USER}: {hashed}\n")
            time.sleep(2)
            while not first.took and len(first.failed) < 3:
                # A refused request is checked nevertheless, and the next one uses the result.
                first.ask(victim.port, "/metrics", headers=AUTHORIZATION)
            for _ in range(10):
                probes.ask(victim.port, "/healthz")
                scrapes.ask(victim.port, "/metrics", headers=AUTHORIZATION)
                time.sleep(0.3)
        print(f"guesses: +{(victim.most - victim.idle) / 1e6:.0f} MB, the first: {first}")
        assert victim.most - victim.idle < MEMORY
        assert first.took
        if sources < CONNECTIONS:
            well(f"guesses from {sources}", probes, scrapes)
        else:  # each client retries immediately, so valid requests take longer
            print(f"guesses from {sources}: {probes}, {scrapes}")
            assert min(len(probes.took), len(scrapes.took)) >= 7


@pytest.mark.parametrize("kind", ["questions", "trickle", "unread", "halves"])
def test_r14_the_scheduler_is_answered_during_an_attack(kind: str, tmp_path: Path) -> None:
    with extending(tmp_path) as victim:
        probes, asked = Times(), Times()
        path = "/metrics" if kind == "unread" else "/filter"
        attack = under_attack(kind, victim.port, path, connections=CONNECTIONS, sources=20)
        with attack, victim.weighed():
            time.sleep(1)
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                probes.ask(victim.port, "/healthz")
                asked.ask(victim.port, "/filter", body=QUESTION)
                time.sleep(0.3)
        print(f"{kind} of an extender: +{(victim.most - victim.idle) / 1e6:.0f} MB")
        assert victim.most - victim.idle < MEMORY
        well(f"{kind} of an extender", probes, asked)


def test_r7_exhausted_descriptors_are_logged_and_podgpu_continues(tmp_path: Path) -> None:
    with playing(tmp_path) as victim:
        pid = victim.process.pid
        logged = len(victim.process.output())
        open_now = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (open_now + 20, open_now + 20))
        times = Times()
        with under_attack("idle", victim.port, connections=200, sources=20):
            time.sleep(1)
            for _ in range(10):
                times.ask(victim.port, "/metrics")
                time.sleep(0.3)
        added = victim.process.output()[logged:]
        print(f"out of descriptors: {len(added)} characters of log, {times}")
        assert "Too many open files" in added
        assert len(added) < 2000
        assert times.took, "some requests succeed"
        times = Times()
        times.ask(victim.port, "/metrics")
        well("afterwards", times)
