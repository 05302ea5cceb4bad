"""The checks `docker.socket` and `docker.cgroups`."""

import asyncio
from pathlib import Path

import pytest

from pipeline.component.findings import Finding, Verdict
from sources.docker.doctor import examine
from tests.fakes.docker import FakeDocker, described
from tests.podgpu.doctor.support import context, is_bad, write
from tests.sources.docker.contract import SOCKET, options
from tests.support.owners import container_id_of


async def findings(folder: Path, *containers: str) -> list[Finding]:
    fake = FakeDocker(*(described(name) for name in containers))
    async with fake.serving(folder / SOCKET):
        return await examine(options(folder), context(folder))


def has_cgroup(folder: Path, path: str) -> None:
    write(folder / "node/proc/4242/cgroup", f"0::{path}\n")


async def test_a_missing_socket_is_a_failure(tmp_path: Path) -> None:
    [finding] = await examine(options(tmp_path), context(tmp_path))
    assert finding.check == "docker.socket"
    is_bad(finding, "failure", "no such file or directory", "mount its socket")


async def test_a_daemon_that_responds_is_ok(tmp_path: Path) -> None:
    [finding, cgroups] = await findings(tmp_path)
    assert (finding.verdict, finding.observed) == (
        Verdict.OK,
        "docker 20.10.24, 0 running containers",
    )
    assert (cgroups.check, cgroups.verdict) == ("docker.cgroups", Verdict.SKIPPED)


async def test_a_socket_without_the_right_to_use_it_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    # Tests may run as root, who has each right.
    monkeypatch.setattr(asyncio.get_running_loop(), "create_unix_connection", refuse)
    [finding] = await examine(options(tmp_path), context(tmp_path))
    is_bad(finding, "failure", "ermission denied", "as root or in the group of the socket")


async def test_processes_of_another_pid_namespace_are_a_warning(tmp_path: Path) -> None:
    [_, finding] = await findings(tmp_path, "web")
    assert finding.check == "docker.cgroups"
    is_bad(finding, "warning", "no process of a running container is visible", "--pid host")


async def test_a_container_that_cannot_be_described_is_no_failure_of_the_socket(
    tmp_path: Path,
) -> None:
    fake = FakeDocker(described("web"))
    fake.refused.add(container_id_of("web"))
    async with fake.serving(tmp_path / SOCKET):
        [finding, _] = await examine(options(tmp_path), context(tmp_path))
    assert finding.verdict == Verdict.OK


async def test_cgroups_with_the_ids_of_containers_are_ok(tmp_path: Path) -> None:
    has_cgroup(tmp_path, f"/system.slice/docker-{container_id_of('web')}.scope")
    [_, finding] = await findings(tmp_path, "web")
    assert finding.verdict == Verdict.OK


async def test_a_cgroup_without_the_id_is_a_warning(tmp_path: Path) -> None:
    has_cgroup(tmp_path, "/batch/job")
    [_, finding] = await findings(tmp_path, "web")
    assert finding.check == "docker.cgroups"
    is_bad(
        finding,
        "warning",
        "does not contain its id",
        "start docker with its usual cgroup manager, and containers without --cgroup-parent",
    )
