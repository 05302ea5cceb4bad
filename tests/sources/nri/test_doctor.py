"""The doctor's findings about the runtime's NRI socket, each fault provoked."""

from functools import partial
from pathlib import Path

import pytest

from pipeline.component.findings import Finding, Verdict
from pipeline.diagnostics.check_runner import findings_of
from sources.nri import doctor
from sources.nri.doctor import examine
from sources.nri.options import Options
from tests.podgpu.doctor.support import context, is_bad, of, unix_socket, write


async def finding_of(folder: Path, path: Path, *rows: str) -> Finding:
    """Return the finding for a socket; `rows` are the kernel's table of sockets, if readable."""
    ctx = context(folder / "ctx")
    if rows:
        head = "Num       RefCount Protocol Flags    Type St Inode Path"
        write(ctx.roots.proc / "net/unix", "\n".join([head, *rows, ""]))
    return of(await findings_of(partial(examine, Options(socket=path), ctx)), "nri.socket")


def listening(path: object) -> str:
    return f"0000000000000000: 00000002 00000000 00010000 0001 01 4711 {path}"


def connected(path: object) -> str:
    return f"0000000000000000: 00000003 00000000 00000000 0001 03 4712 {path}"


RUNTIME = listening("/run/containerd/containerd.sock")


async def test_a_socket_with_a_listener_is_ok_and_not_connected_to(tmp_path: Path) -> None:
    path = tmp_path / "nri.sock"
    with unix_socket(path) as runtime:
        finding = await finding_of(tmp_path, path, RUNTIME, listening(path))
        runtime.setblocking(False)
        with pytest.raises(BlockingIOError):
            runtime.accept()
    assert finding.verdict is Verdict.OK


LISTENER_CASES = [
    ((RUNTIME,), "failure", "no process listens"),
    ((RUNTIME, connected("/var/run/nri/nri.sock"), "nonsense"), "failure", "no process listens"),
    ((listening("/var/run/nri/nri.sock"),), "ok", "a process listens"),
    ((listening("@/tmp/of-a-pod"),), "skipped", "it is unknown"),
    ((), "skipped", "it is unknown"),
]


@pytest.mark.parametrize(("rows", "verdict", "observation"), LISTENER_CASES)
async def test_a_socket_without_a_listener_is_a_failure_if_the_table_shows_it(
    tmp_path: Path, rows: tuple[str, ...], verdict: str, observation: str
) -> None:
    """The table is the host's only if a socket that only the host has is in it."""
    with unix_socket(tmp_path / "nri.sock", listens=False):
        finding = await finding_of(tmp_path, tmp_path / "nri.sock", *rows)
    assert (finding.verdict.value, observation in finding.observed) == (verdict, True), finding


async def test_a_folder_that_is_not_mounted_is_a_failure(tmp_path: Path) -> None:
    finding = await finding_of(tmp_path, tmp_path / "none/nri.sock")
    is_bad(finding, "failure", "it is not mounted", f"mount {tmp_path}/none")


async def test_a_missing_socket_is_a_failure_that_explains_how_to_enable_nri(
    tmp_path: Path,
) -> None:
    finding = await finding_of(tmp_path, tmp_path / "nri.sock")
    is_bad(finding, "failure", "NRI disabled", "disable = false")
    assert "enable_nri = true" in finding.fix


async def test_a_file_that_is_no_socket_is_a_failure(tmp_path: Path) -> None:
    finding = await finding_of(tmp_path, write(tmp_path / "nri.sock"))
    is_bad(finding, "failure", "is not a socket", "set socket")


async def test_a_path_below_a_file_is_a_failure(tmp_path: Path) -> None:
    finding = await finding_of(tmp_path, write(tmp_path / "file") / "nri.sock")
    is_bad(finding, "failure", "not a directory", "run podgpu as root")


async def test_a_socket_without_permission_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may use any socket, so `access` is replaced here."""
    path = tmp_path / "nri.sock"
    with unix_socket(path):
        monkeypatch.setattr(doctor.os, "access", lambda *_: False)  # type: ignore[attr-defined]
        is_bad(await finding_of(tmp_path, path), "failure", "not readable", "run podgpu as root")
