"""What the doctor says of the runtime's NRI socket, each fault provoked."""

from pathlib import Path

import pytest

from pipeline.component.findings import Finding, Verdict
from sources.nri import doctor
from sources.nri.doctor import examine
from sources.nri.options import Options
from tests.podgpu.doctor.support import context, is_bad, of, unix_socket, write


async def looked(folder: Path, path: Path, *rows: str) -> Finding:
    """Look at a socket; `rows` are of the kernel's table, which else can't be read."""
    ctx = context(folder / "ctx")
    if rows:
        head = "Num       RefCount Protocol Flags    Type St Inode Path"
        write(ctx.roots.proc / "net/unix", "\n".join([head, *rows, ""]))
    return of(await examine(Options(socket=path), ctx), "nri.socket")


def listening(path: object) -> str:
    return f"0000000000000000: 00000002 00000000 00010000 0001 01 4711 {path}"


def connected(path: object) -> str:
    return f"0000000000000000: 00000003 00000000 00000000 0001 03 4712 {path}"


RUNTIME = listening("/run/containerd/containerd.sock")


async def test_a_socket_is_well_and_no_one_connects_to_it(tmp_path: Path) -> None:
    path = tmp_path / "nri.sock"
    with unix_socket(path) as runtime:
        given_out = await looked(tmp_path, path, RUNTIME, listening(path))
        runtime.setblocking(False)
        with pytest.raises(BlockingIOError):
            runtime.accept()
    assert given_out.verdict is Verdict.OK


NO_ONE = [
    ((RUNTIME,), "failure", "no process listens"),
    ((RUNTIME, connected("/var/run/nri/nri.sock"), "nonsense"), "failure", "no process listens"),
    ((listening("/var/run/nri/nri.sock"),), "ok", "a process listens"),
    ((listening("@/tmp/of-a-pod"),), "skipped", "it is unknown"),
    ((), "skipped", "it is unknown"),
]


@pytest.mark.parametrize(("rows", "verdict", "saw"), NO_ONE)
async def test_a_socket_that_its_runtime_left_behind(
    tmp_path: Path, rows: tuple[str, ...], verdict: str, saw: str
) -> None:
    """The kernel's table is the host's where what listens there alone is in it."""
    with unix_socket(tmp_path / "nri.sock", listens=False):
        given_out = await looked(tmp_path, tmp_path / "nri.sock", *rows)
    assert (given_out.verdict.value, saw in given_out.observed) == (verdict, True), given_out


async def test_a_folder_that_is_not_mounted(tmp_path: Path) -> None:
    given_out = await looked(tmp_path, tmp_path / "none/nri.sock")
    is_bad(given_out, "failure", "it is not mounted", f"mount {tmp_path}/none")


async def test_nri_that_is_off(tmp_path: Path) -> None:
    given_out = await looked(tmp_path, tmp_path / "nri.sock")
    is_bad(given_out, "failure", "NRI disabled", "disable = false")
    assert "enable_nri = true" in given_out.fix


async def test_what_is_no_socket(tmp_path: Path) -> None:
    given_out = await looked(tmp_path, write(tmp_path / "nri.sock"))
    is_bad(given_out, "failure", "is not a socket", "set socket")


async def test_a_path_that_leads_nowhere(tmp_path: Path) -> None:
    given_out = await looked(tmp_path, write(tmp_path / "file") / "nri.sock")
    is_bad(given_out, "failure", "not a directory", "run podgpu as root")


async def test_a_socket_that_may_not_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may use any: that it may not is the call's word here."""
    path = tmp_path / "nri.sock"
    with unix_socket(path):
        monkeypatch.setattr(doctor.os, "access", lambda *_: False)  # type: ignore[attr-defined]
        is_bad(await looked(tmp_path, path), "failure", "not readable", "run podgpu as root")
