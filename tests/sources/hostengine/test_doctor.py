"""The findings of `podgpu doctor` about DCGM's library and the host engine, for each fault."""

import socket
from pathlib import Path

import pytest

from pipeline.component.code_permissions import Allowed
from pipeline.component.findings import Finding, Verdict
from sources.hostengine.doctor import examine
from sources.hostengine.options import Options
from tests.fakes.dcgm import FakeDcgm
from tests.podgpu.doctor.support import context, is_bad, of, unix_socket, write


async def examined(folder: Path, options: Options) -> list[Finding]:
    return await examine(options, context(folder / "ctx", allowed=Allowed(everything=True)))


async def test_a_library_and_an_engine_are_ok_without_initialising_the_library(
    fake_dcgm: FakeDcgm, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as engine:
        port = engine.getsockname()[1]
        options = Options(library=fake_dcgm.library, address=f"127.0.0.1:{port}")
        found = await examined(tmp_path, options)
    assert [each.verdict for each in found] == [Verdict.OK, Verdict.OK]
    assert fake_dcgm.calls() == []


async def test_a_unix_socket_of_an_engine_is_ok(fake_dcgm: FakeDcgm, tmp_path: Path) -> None:
    path = tmp_path / "engine"
    with unix_socket(path):
        options = Options(library=fake_dcgm.library, address=f"unix://{path}")
        found = await examined(tmp_path, options)
    assert of(found, "hostengine.address").verdict is Verdict.OK


async def test_a_missing_library_is_a_failure(tmp_path: Path) -> None:
    options = Options(library=tmp_path / "libdcgm.so.4", address=str(tmp_path / "engine"))
    found = await examined(tmp_path, options)
    finding = of(found, "hostengine.library")
    is_bad(finding, "failure", "cannot open shared object file", "set library to its path")


async def test_a_file_that_is_no_library_is_a_failure(tmp_path: Path) -> None:
    path = write(tmp_path / "libdcgm.so.4", "no library")
    found = await examined(tmp_path, Options(library=path, address=str(tmp_path / "engine")))
    is_bad(of(found, "hostengine.library"), "failure", "file too short", "add DCGM's client")


async def test_an_engine_that_does_not_listen_is_a_failure(
    fake_dcgm: FakeDcgm, tmp_path: Path
) -> None:
    options = Options(library=fake_dcgm.library, address=str(tmp_path / "engine"))
    found = await examined(tmp_path, options)
    is_bad(of(found, "hostengine.address"), "failure", "cannot connect", "start nv-hostengine")


@pytest.mark.parametrize("host", ["no.such.invalid", "x" * 300, "a..b"])
async def test_a_host_name_that_cannot_be_resolved_is_a_failure(
    fake_dcgm: FakeDcgm, tmp_path: Path, host: str
) -> None:
    found = await examined(tmp_path, Options(library=fake_dcgm.library, address=f"{host}:5555"))
    finding = of(found, "hostengine.address")
    is_bad(finding, "failure", f"cannot resolve the name {host}", "dnsPolicy")
