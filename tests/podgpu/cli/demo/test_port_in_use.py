"""`podgpu demo` on a port that is in use: it says by whom, before it does anything else."""

import socket
from pathlib import Path

import pytest

from podgpu.cli.commands import run_command
from podgpu.cli.demo import command
from tests.podgpu.doctor.support import in_this_container, process


@pytest.mark.parametrize("by_variable", [False, True])
def test_another_demo_is_named(
    by_variable: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(command, "PROC", tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        words = () if by_variable else ("--listen", address)
        process(tmp_path, 7, "podgpu", "demo", *words)
        in_this_container(tmp_path, 7)
        (tmp_path / "7" / "environ").write_text(f"PODGPU_LISTEN={address}\0" * by_variable)
        assert run_command(["demo", "--listen", address]) == 2
    error = capsys.readouterr().err
    port = int(address.rpartition(":")[2])
    assert f"a podgpu demo (process 7) serves http://localhost:{port}/" in error
    assert f"podgpu demo --listen :{port + 1}" in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "state").exists()


def test_another_program_is_not_called_a_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "PROC", tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert run_command(["demo", "--listen", address]) == 2
    assert "another program uses the port; choose another port" in capsys.readouterr().err
