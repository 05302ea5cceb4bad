"""The check `twins`."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from pipeline.component.findings import Verdict
from pipeline.diagnostics import duplicate_daemons
from pipeline.diagnostics.check_runner import findings_of
from tests.podgpu.doctor.support import PODGPU, context, is_bad, of, process

IN_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}

COMMANDS = [
    (PODGPU, True),
    (("podgpu", "run"), True),
    (("python", "-m", "pipeline", "dcgm-exporter", "-k"), True),
    (("python", "/usr/bin/podgpu", "doctor"), False),
    (("sh", "-c", "podgpu run"), False),
    (("kubectl", "exec", "pod", "--", "podgpu", "run"), False),
    (("vim", "podgpu", "run"), False),
    (("podgpu",), False),
    (("podgpu", "dcgm-exporter", "--print-config"), False),
    (("podgpu", "dcgm-exporter", "-a", ":9400", "-print-config=true"), False),
    (("podgpu", "dcgm-exporter", "--help"), False),
    (("podgpu", "dcgm-exporter", "-a", ":9400"), True),
    ((), False),
]


@pytest.mark.parametrize(("command", "is_daemon"), COMMANDS)
def test_a_podgpu_process_is_identified_by_its_command_line(
    tmp_path: Path, command: tuple[str, ...], is_daemon: bool
) -> None:
    process(tmp_path, 7, *command)
    assert duplicate_daemons.daemon_pids(tmp_path) == ([7] if is_daemon else [], [])


async def test_two_podgpu_processes_on_a_node_are_a_warning(tmp_path: Path) -> None:
    ctx = context(tmp_path, environ=IN_POD)
    process(ctx.roots.proc, 1, *PODGPU)
    (finding,) = await findings_of(partial(duplicate_daemons.examine, ctx))
    assert finding.verdict is Verdict.OK
    process(ctx.roots.proc, 4711, *PODGPU)
    found = await findings_of(partial(duplicate_daemons.examine, ctx))
    is_bad(of(found, "twins"), "warning", "2 podgpu processes run: 1, 4711", "remove one of them")
    assert "if podgpu is being updated" in of(found, "twins").fix, "an update is not visible here"


async def test_dcgm_exporter_next_to_podgpu_is_a_warning_unless_podgpu_reads_its_page(
    tmp_path: Path,
) -> None:
    ctx = context(tmp_path / "a", environ=IN_POD)
    process(ctx.roots.proc, 9, "/usr/bin/dcgm-exporter", "-f", "a.csv")
    is_bad(
        (await findings_of(partial(duplicate_daemons.examine, ctx)))[0],
        "warning",
        "dcgm-exporter runs",
        "remove one of them",
    )
    source = "sources: {d: {kind: dcgm, url: 'http://localhost:9401/metrics'}}\n"
    ctx_with_source = context(tmp_path / "b", source, roots=ctx.roots)
    (finding,) = await findings_of(partial(duplicate_daemons.examine, ctx_with_source))
    assert finding.verdict is Verdict.OK


async def test_the_fix_names_kubernetes_only_where_it_is(tmp_path: Path) -> None:
    ctx = context(tmp_path, environ={})
    ctx = replace(ctx, roots=replace(ctx.roots, host=tmp_path / "host"))
    for pid in (1, 4711):
        process(ctx.roots.proc, pid, *PODGPU)

    async def fix() -> str:
        return of(await findings_of(partial(duplicate_daemons.examine, ctx)), "twins").fix

    assert "kubectl" not in await fix()
    assert "ps -fp 1,4711" in await fix()
    (ctx.roots.host / "var" / "lib" / "kubelet").mkdir(parents=True)
    assert "kubectl" in await fix()
