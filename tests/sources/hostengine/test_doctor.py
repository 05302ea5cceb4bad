"""What the doctor says of DCGM's library and the host engine, each fault provoked."""

import socket
from pathlib import Path

import pytest

from pipeline.component.code_permissions import Allowed
from pipeline.component.findings import Finding, Verdict
from sources.hostengine.doctor import examine
from sources.hostengine.options import Options
from tests.fakes.dcgm import FakeDcgm
from tests.podgpu.doctor.support import context, is_bad, of, unix_socket, write


async def looked(folder: Path, options: Options) -> list[Finding]:
    return await examine(options, context(folder / "ctx", allowed=Allowed(everything=True)))


async def test_a_library_and_an_engine_are_well_and_the_library_is_not_begun(
    fake_dcgm: FakeDcgm, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as engine:
        port = engine.getsockname()[1]
        options = Options(library=fake_dcgm.library, address=f"127.0.0.1:{port}")
        found = await looked(tmp_path, options)
    assert [each.verdict for each in found] == [Verdict.OK, Verdict.OK]
    assert fake_dcgm.calls() == []


async def test_a_socket_of_an_engine_is_well(fake_dcgm: FakeDcgm, tmp_path: Path) -> None:
    path = tmp_path / "engine"
    with unix_socket(path):
        options = Options(library=fake_dcgm.library, address=f"unix://{path}")
        found = await looked(tmp_path, options)
    assert of(found, "hostengine.address").verdict is Verdict.OK


async def test_no_library(tmp_path: Path) -> None:
    options = Options(library=tmp_path / "libdcgm.so.4", address=str(tmp_path / "engine"))
    found = await looked(tmp_path, options)
    given_out = of(found, "hostengine.library")
    is_bad(given_out, "failure", "cannot open shared object file", "set library to its path")


async def test_a_library_of_another_kind(tmp_path: Path) -> None:
    path = write(tmp_path / "libdcgm.so.4", "no library")
    found = await looked(tmp_path, Options(library=path, address=str(tmp_path / "engine")))
    is_bad(of(found, "hostengine.library"), "failure", "file too short", "add DCGM's client")


async def test_no_one_listens(fake_dcgm: FakeDcgm, tmp_path: Path) -> None:
    options = Options(library=fake_dcgm.library, address=str(tmp_path / "engine"))
    found = await looked(tmp_path, options)
    is_bad(of(found, "hostengine.address"), "failure", "cannot connect", "start nv-hostengine")


@pytest.mark.parametrize("host", ["no.such.invalid", "x" * 300, "a..b"])
async def test_a_name_that_no_one_knows(fake_dcgm: FakeDcgm, tmp_path: Path, host: str) -> None:
    found = await looked(tmp_path, Options(library=fake_dcgm.library, address=f"{host}:5555"))
    given_out = of(found, "hostengine.address")
    is_bad(given_out, "failure", f"cannot resolve the name {host}", "dnsPolicy")
