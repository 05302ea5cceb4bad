"""The check `counters`."""

import errno
import os
from pathlib import Path

import pytest

from pipeline.component.findings import Verdict
from pipeline.diagnostics import counters_list_check
from pipeline.files import bounded_read
from tests.podgpu.doctor.support import context, free_port, is_bad, of, page, serving, write
from tests.support.kube import ApiServer, Collection, status


async def test_a_missing_list_is_a_failure(tmp_path: Path) -> None:
    ctx = context(tmp_path, f"counters: {{file: {tmp_path}/none.csv}}\n")
    found = await counters_list_check.examine(ctx.config.counters, ctx)
    is_bad(of(found, "counters"), "failure", "no such file", "mount the folder")


async def test_a_path_that_is_not_a_file_has_a_fix_about_the_path(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        ctx = context(tmp_path / f"ctx{name}", f"counters: {{file: {tmp_path}/{name}}}\n")
        finding = of(await counters_list_check.examine(ctx.config.counters, ctx), "counters")
        is_bad(finding, "failure", "", "give the path of a list")


async def test_a_list_without_read_permission_is_not_reported_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root can read each file, so the call is replaced."""

    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    ctx = context(tmp_path, f"counters: {{file: {write(tmp_path / 'c.csv')}}}\n")
    monkeypatch.setattr(bounded_read.os, "open", refuse)  # type: ignore[attr-defined]
    found = await counters_list_check.examine(ctx.config.counters, ctx)
    finding = of(found, "counters")
    is_bad(finding, "failure", f"permission denied to uid {os.geteuid()}", "run podgpu as root")
    assert "mount" not in finding.fix


async def test_unknown_rows_are_a_warning(tmp_path: Path) -> None:
    path = write(
        tmp_path / "c.csv", "DCGM_FI_DEV_GPU_UTIL, gauge, a\nDCGM_FI_DEV_NONE_SUCH, gauge, b\n"
    )
    ctx = context(tmp_path, f"counters: {{file: {path}}}\n")
    found = await counters_list_check.examine(ctx.config.counters, ctx)
    is_bad(of(found, "counters"), "warning", "DCGM_FI_DEV_NONE_SUCH", "remove these rows")


async def test_a_list_without_a_usable_row_is_a_failure(tmp_path: Path) -> None:
    path = write(tmp_path / "c.csv", "# nothing\n")
    ctx = context(tmp_path, f"counters: {{file: {path}}}\n")
    found = await counters_list_check.examine(ctx.config.counters, ctx)
    is_bad(of(found, "counters"), "failure", "no usable row", "default-counters.csv")


MAP = "/api/v1/namespaces/mon/configmaps/gpu"
RULE = "Role in mon with verbs [get] on configmaps"
REFUSALS = [
    (403, "Forbidden", "403", RULE),
    (404, "NotFound", "404", RULE),
    (401, "Unauthorized", "401", "renew the token"),
    (500, "InternalError", "500", "the log of the API server"),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda each: each[1])
async def test_a_refused_configmap_is_a_warning_with_a_fix(
    tmp_path: Path, refusal: tuple[int, str, str, str]
) -> None:
    code, reason, observed, fix = refusal
    server = ApiServer({MAP: Collection()})
    server.refusals[MAP] = status(code, reason, "no")
    async with server.serving():
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
        ctx = context(tmp_path, f"counters: {{configmap: 'mon:gpu', kubeconfig: {kubeconfig}}}\n")
        found = await counters_list_check.examine(ctx.config.counters, ctx)
    is_bad(of(found, "counters"), "warning", observed, fix)


async def test_an_unreachable_server_has_a_fix_about_its_address(tmp_path: Path) -> None:
    server = ApiServer({})
    server.port = free_port()
    kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
    ctx = context(tmp_path, f"counters: {{configmap: 'mon:gpu', kubeconfig: {kubeconfig}}}\n")
    found = await counters_list_check.examine(ctx.config.counters, ctx)
    is_bad(of(found, "counters"), "warning", "Connect call failed", "the address is correct")


async def test_a_configmap_without_the_key_is_reported_with_its_keys(tmp_path: Path) -> None:
    async with serving(lambda _: page(b'{"data": {"list": ""}}')) as port:
        server = ApiServer({})
        server.port = port
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
        ctx = context(tmp_path, f"counters: {{configmap: 'mon:gpu', kubeconfig: {kubeconfig}}}\n")
        found = await counters_list_check.examine(ctx.config.counters, ctx)
    is_bad(of(found, "counters"), "warning", "its keys: list", "as key metrics")


async def test_a_valid_list_and_no_list_are_ok(tmp_path: Path) -> None:
    path = write(tmp_path / "c.csv", "DCGM_FI_DEV_GPU_UTIL, gauge, a\n")
    for text in (f"counters: {{file: {path}, own: false}}\n", ""):
        ctx = context(tmp_path / str(len(text)), text)
        found = await counters_list_check.examine(ctx.config.counters, ctx)
        assert of(found, "counters").verdict is Verdict.OK
