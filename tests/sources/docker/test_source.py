"""What the source `docker` reports, from a real server on a Unix socket."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from config.value_types import Duration
from pipeline.base.errors import TransientError
from pipeline.model import (
    ContainersReplaced,
    ContainerStarted,
    ContainerStopped,
    Evidence,
    RawDeviceId,
    container_uid,
)
from sources.docker.containers import MAX_TEXT
from sources.docker.options import Options
from sources.docker.source import DockerSource
from tests.fakes.docker import FakeDocker, described
from tests.sources.docker.contract import SOCKET, options
from tests.support.contexts import FakeSourceContext
from tests.support.owners import container_id_of
from tests.support.running import running

ALL_GPUS = [{"Count": -1, "Capabilities": [["gpu"]]}]
POD = {"io.kubernetes.pod.uid": "u-1"}
COMPOSE = {"com.docker.compose.project": "lab", "com.docker.compose.service": "web"}


@asynccontextmanager
async def following(fake: FakeDocker, folder: Path) -> AsyncIterator[FakeSourceContext]:
    """Run the source with a daemon, from its first report on."""
    ctx = FakeSourceContext("docker")
    async with fake.serving(folder / SOCKET), running(DockerSource(options(folder)), ctx):
        await ctx.wait_for(ContainersReplaced, 1)
        yield ctx


async def names(fake: FakeDocker, folder: Path) -> list[str]:
    """Return the names of the containers in the first report."""
    async with following(fake, folder) as ctx:
        [listed] = await ctx.wait_for(ContainersReplaced, 1)
    return [one.subject.pod for one in listed.containers]


async def failure(folder: Path) -> str:
    """Return the error with which the source ends."""
    with pytest.raises(TransientError) as caught:
        await DockerSource(options(folder)).run(FakeSourceContext("docker"))
    return str(caught.value)


async def test_all_running_containers_are_reported(tmp_path: Path) -> None:
    web = described("lab-web-1", labels=COMPOSE, image="cuda:13", DeviceRequests=ALL_GPUS)
    fake = FakeDocker(web, described("db"), described("old", running=False))
    async with following(fake, tmp_path) as ctx:
        [listed] = await ctx.wait_for(ContainersReplaced, 1)
    found = {one.subject.pod: one for one in listed.containers}
    assert sorted(found) == ["db", "lab-web-1"]
    one = found["lab-web-1"]
    container_id = container_id_of("lab-web-1")
    assert (one.subject.uid, one.subject.container_id) == (
        container_uid("docker", container_id),
        container_id,
    )
    assert one.pid == 4242
    assert one.started is not None
    assert one.started.wall_ns == 1_795_860_000_123_456_000
    assert one.info is not None
    assert one.info.labels == (
        ("compose_project", "lab"),
        ("compose_service", "web"),
        ("image", "cuda:13"),
    )
    assert (one.info.owner_kind, one.info.owner_name) == ("ComposeProject", "lab")
    [claim] = one.claims
    assert claim.devices == (RawDeviceId("all", "all"),)
    assert claim.origin.evidence is Evidence.DEVICE_REQUEST
    assert found["db"].claims == ()


async def test_containers_of_podman_have_its_name(tmp_path: Path) -> None:
    fake = FakeDocker(described("web", image="docker.io/nvidia/cuda:13", runtime="oci"))
    fake.version["Components"] = [{"Name": "Podman Engine"}, {"Name": "Conmon"}]
    async with following(fake, tmp_path) as ctx:
        [listed] = await ctx.wait_for(ContainersReplaced, 1)
    [found] = listed.containers
    assert found.subject.uid.startswith("podman://")
    assert found.info is not None
    assert dict(found.info.labels)["image"] == "docker.io/nvidia/cuda:13"


async def test_a_container_of_a_pod_is_left_to_the_sources_of_pods(tmp_path: Path) -> None:
    pod = described("k8s_main_p_ml", labels=POD, CgroupParent="kubepods-burstable-podu_1.slice")
    fake = FakeDocker(pod)
    async with following(fake, tmp_path) as ctx:
        fake.put(pod)
        fake.put(described("web"))
        [started] = await ctx.wait_for(ContainerStarted, 1)
        [listed] = await ctx.wait_for(ContainersReplaced, 1)
    assert (listed.containers, started.container.subject.pod) == ((), "web")


async def test_a_container_of_a_pod_is_read_once(tmp_path: Path) -> None:
    pod = described("k8s_main_p_ml", labels=POD, CgroupParent="/kubepods/burstable/podu-1")
    fake = FakeDocker(pod)
    async with following(fake, tmp_path) as ctx:
        fake.send(b"\n")
        await ctx.wait_for(ContainersReplaced, 2)
    assert fake.requests.count(f"/containers/{pod['Id']}/json") == 1


@pytest.mark.parametrize("parent", ["", "system.slice"])
async def test_the_label_of_pods_alone_hides_no_container(parent: str, tmp_path: Path) -> None:
    """Who starts a container can set it."""
    fake = FakeDocker(described("web", labels=POD, CgroupParent=parent))
    assert await names(fake, tmp_path) == ["web"]


@pytest.mark.parametrize("is_podman", [False, True])
async def test_a_paused_container_keeps_its_gpus(is_podman: bool, tmp_path: Path) -> None:
    paused = described("web", DeviceRequests=ALL_GPUS)
    # Podman says that it does not run, and lists it only if asked.
    paused["State"] |= {"Paused": True, "Running": not is_podman}
    fake = FakeDocker(paused, described("old", running=False))
    if is_podman:
        fake.version["Components"] = [{"Name": "Podman Engine"}]
    assert await names(fake, tmp_path) == ["web"]


@pytest.mark.parametrize(
    ("pid", "expected"),
    [(1, 1), (1 << 22, 1 << 22), ((1 << 22) + 1, None), (0, None), (True, None), ("1", None)],
)
async def test_only_pids_that_the_kernel_gives_are_used(
    pid: Any, expected: int | None, tmp_path: Path
) -> None:
    async with following(FakeDocker(described("web", pid=pid)), tmp_path) as ctx:
        [listed] = await ctx.wait_for(ContainersReplaced, 1)
    assert [one.pid for one in listed.containers] == [expected]


async def test_start_end_restart_and_new_name_are_reported_by_events(tmp_path: Path) -> None:
    fake = FakeDocker()
    async with following(fake, tmp_path) as ctx:
        fake.put(described("web", DeviceRequests=ALL_GPUS))
        [first] = await ctx.wait_for(ContainerStarted, 1)
        fake.end("web")
        [stopped] = await ctx.wait_for(ContainerStopped, 1)
        assert stopped.container_id == container_id_of("web")
        fake.put(described("web", pid=7, started="2026-11-28T11:00:00Z"))
        [_, again] = await ctx.wait_for(ContainerStarted, 2)
        assert again.container.subject == first.container.subject
        assert again.container.started != first.container.started
        fake.put(described("web", pid=7) | {"Name": "/api"}, "rename")
        [*_, renamed] = await ctx.wait_for(ContainerStarted, 3)
        assert renamed.container.subject.pod == "api"
        fake.end("web", remove=True)
        await ctx.wait_for(ContainerStopped, 2)
    assert len([each for each in ctx.events if isinstance(each, ContainersReplaced)]) == 1


async def test_events_that_change_nothing_cause_no_request(tmp_path: Path) -> None:
    fake = FakeDocker(described("web"))
    async with following(fake, tmp_path) as ctx:
        before = len(fake.requests)
        fake.report(container_id_of("web"), "exec_start: sh -c health")
        fake.report(container_id_of("web"), "health_status: healthy")
        fake.report("bridge", "connect", "network")
        fake.put(described("db"))
        await ctx.wait_for(ContainerStarted, 1)
        assert len(fake.requests) == before + 1


@pytest.mark.parametrize("data", [b"not json\n", b'{"Type": "container"}\n', b"[1]\n", b"\n"])
async def test_after_an_event_that_cannot_be_read_all_are_listed(
    data: bytes, tmp_path: Path
) -> None:
    fake = FakeDocker()
    async with following(fake, tmp_path) as ctx:
        web = described("web")
        fake.containers[web["Id"]] = web
        fake.send(data)
        [_, listed] = await ctx.wait_for(ContainersReplaced, 2)
    assert [one.subject.pod for one in listed.containers] == ["web"]


async def test_no_change_is_missed_between_the_list_and_the_stream(tmp_path: Path) -> None:
    """The stream is opened before the list."""
    fake = FakeDocker()
    async with following(fake, tmp_path):
        pass
    assert fake.requests[:3] == ["/version", "/events", "/containers/json"]


async def test_a_new_connection_lists_all_containers_again(tmp_path: Path) -> None:
    fake, ctx = FakeDocker(described("web")), FakeSourceContext("docker")
    source = DockerSource(options(tmp_path))
    async with fake.serving(tmp_path / SOCKET):
        first = asyncio.create_task(source.run(ctx))
        await ctx.wait_for(ContainersReplaced, 1)
        fake.close_streams()
        with pytest.raises(TransientError, match="closed the stream"):
            await first
        fake.end("web")
        fake.put(described("db"))
        async with running(source, ctx):
            [before, after] = await ctx.wait_for(ContainersReplaced, 2)
    assert [one.subject.pod for one in before.containers] == ["web"]
    assert [one.subject.pod for one in after.containers] == ["db"]


# -- faults


async def test_a_missing_socket_names_the_fix(tmp_path: Path) -> None:
    text = await failure(tmp_path)
    assert text.startswith(f"{tmp_path / SOCKET}: no such file or directory; check that the daemon")


async def test_a_file_that_is_no_socket_names_the_fix(tmp_path: Path) -> None:
    (tmp_path / SOCKET).write_text("")
    assert "connection refused; check that the daemon runs" in await failure(tmp_path)


async def test_an_error_of_the_daemon_is_named(tmp_path: Path) -> None:
    fake = FakeDocker()
    fake.status = 500
    async with fake.serving(tmp_path / SOCKET):
        assert '/version answered 500: {"message": "refused"}' in await failure(tmp_path)


@pytest.mark.slow
async def test_a_daemon_that_does_not_respond_is_given_up(tmp_path: Path) -> None:
    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        closed.set()

    closed = asyncio.Event()
    source = DockerSource(Options(socket=tmp_path / SOCKET, timeout=Duration.parse("1s")))
    async with await asyncio.start_unix_server(receive, tmp_path / SOCKET):
        with pytest.raises(TransientError, match="no complete response within 1 s"):
            await source.run(FakeSourceContext("docker"))
        await closed.wait()


@pytest.mark.parametrize(
    ("path", "content", "text"),
    [
        ("version", [], "the response to /version is not an object"),
        ("containers", {}, "the response to /containers/json is not a list"),
    ],
)
async def test_another_server_is_recognised(
    path: str, content: object, text: str, tmp_path: Path
) -> None:
    fake = FakeDocker()
    fake.replaced[path] = content
    async with fake.serving(tmp_path / SOCKET):
        assert text in await failure(tmp_path)


def _set(name: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda one: one.update({name: value})


HOSTILE = {
    "no state": _set("State", None),
    "an id that is no id": _set("Id", "../../etc"),
    "an id of another container": _set("Id", container_id_of("other")),
    "an id that is no text": _set("Id", 7),
    "a state that is no state": _set("State", {"Running": "yes"}),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE.keys())
async def test_a_container_that_cannot_be_read_is_left_out(
    change: Callable[[dict[str, Any]], None], tmp_path: Path
) -> None:
    broken = described("broken")
    fake = FakeDocker(described("web"), broken)
    change(broken)
    async with following(fake, tmp_path) as ctx:
        [listed] = await ctx.wait_for(ContainersReplaced, 1)
    assert [one.subject.pod for one in listed.containers] == ["web"]


async def test_a_container_that_the_daemon_cannot_describe_is_left_out_until_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = described("broken")
    fake = FakeDocker(described("web"), broken)
    fake.refused.add(broken["Id"])
    async with following(fake, tmp_path) as ctx:
        fake.send(b"\n")
        [*listed] = await ctx.wait_for(ContainersReplaced, 2)
        fake.refused.clear()
        fake.send(b"\n")
        [*_, last] = await ctx.wait_for(ContainersReplaced, 3)
    found = [[one.subject.pod for one in each.containers] for each in (*listed, last)]
    assert found[:2] == [["web"], ["web"]]
    assert sorted(found[2]) == ["broken", "web"]
    [text] = [text for text in caplog.messages if "leaves it out" in text]
    assert "answered 500" in text


async def test_a_known_container_stays_while_the_daemon_cannot_describe_it(tmp_path: Path) -> None:
    """An overloaded daemon must not end holdings."""
    web = described("web")
    fake = FakeDocker(web, described("other"))
    async with following(fake, tmp_path) as ctx:
        [first] = await ctx.wait_for(ContainersReplaced, 1)
        fake.refused.add(web["Id"])
        fake.report(web["Id"], "rename")
        fake.send(b"\n")
        [*_, last] = await ctx.wait_for(ContainersReplaced, 2)
    assert last.containers == first.containers
    assert not [each for each in ctx.events if isinstance(each, ContainerStopped)]


async def test_a_daemon_that_describes_nothing_is_not_an_empty_one(tmp_path: Path) -> None:
    web = described("web")
    fake = FakeDocker(web)
    fake.refused.add(web["Id"])
    async with fake.serving(tmp_path / SOCKET):
        assert "describe none of its containers" in await failure(tmp_path)


async def test_a_description_that_is_too_long_leaves_out_only_its_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sources.docker.source.MAX_RESPONSE", 2_000)
    fake = FakeDocker(described("web"), described("long", env=("x" * 2_000,)))
    assert await names(fake, tmp_path) == ["web"]


async def test_names_are_cut(tmp_path: Path) -> None:
    long = "x" * 10_000
    fake = FakeDocker(described("web", image=long, labels=dict.fromkeys(COMPOSE, long)))
    async with following(fake, tmp_path) as ctx:
        [listed] = await ctx.wait_for(ContainersReplaced, 1)
    [found] = listed.containers
    assert found.info is not None
    assert {len(text) for _, text in found.info.labels} == {MAX_TEXT}
