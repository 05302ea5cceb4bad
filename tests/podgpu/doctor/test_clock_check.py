"""The check `clock`."""

import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path

import pytest

from pipeline.component.findings import Verdict
from pipeline.diagnostics.context import kernel_synchronised
from podgpu.doctor import clock_check
from tests.podgpu.doctor.silent_server import silent_server
from tests.podgpu.doctor.support import context, is_bad, of, page, serving, write


@asynccontextmanager
async def server_with_clock(ahead: float) -> AsyncIterator[str]:
    """Run a server whose clock is ahead; it responds 401, as API servers may."""

    def respond(_: str) -> bytes:
        date = formatdate(time.time() + ahead, usegmt=True)
        return page(b"", f"Date: {date}", status="401 Unauthorized")

    async with serving(respond) as port:
        yield f"http://127.0.0.1:{port}"


def pods_at(path: Path, server: str) -> str:
    write(
        path,
        json.dumps(
            {
                "current-context": "t",
                "contexts": [{"name": "t", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
            }
        ),
    )
    return f"sources: {{p: {{kind: pods, kubeconfig: {path}}}}}\n"


CLOCKS = [(0, Verdict.OK, ""), (-20, Verdict.WARNING, "ahead of"), (600, Verdict.FAILURE, "behind")]


@pytest.mark.parametrize(("ahead", "verdict", "observed"), CLOCKS)
async def test_the_clock_is_compared_with_that_of_the_api_server(
    tmp_path: Path, ahead: float, verdict: Verdict, observed: str
) -> None:
    async with server_with_clock(ahead) as server:
        ctx = context(tmp_path, pods_at(tmp_path / "kubeconfig", server), synchronised=lambda: None)
        found = await clock_check.examine(ctx)
    finding = of(found, "clock")
    assert finding.verdict is verdict, finding
    assert server in finding.subject
    if observed:
        is_bad(finding, verdict.value, f"s {observed}", "chrony")


async def test_an_invalid_server_address_is_no_fault_of_the_clock(tmp_path: Path) -> None:
    ctx = context(tmp_path, pods_at(tmp_path / "kubeconfig", "https://127.0.0.1:notaport"))
    assert of(await clock_check.examine(ctx), "clock").verdict is Verdict.OK, "by the kernel"


async def test_the_api_server_of_a_sink_is_used_too_and_each_server_once(tmp_path: Path) -> None:
    async with server_with_clock(0) as server:
        source = pods_at(tmp_path / "kubeconfig", server)
        sinks = f"sinks: {{n: {{kind: node, kubeconfig: {tmp_path}/kubeconfig}}}}\n"
        for folder, text in (("a", sinks), ("b", source + sinks)):
            ctx = context(tmp_path / folder, text, synchronised=lambda: None)
            assert of(await clock_check.examine(ctx), "clock").verdict is Verdict.OK


async def test_a_clock_that_is_not_synchronised_is_a_warning(tmp_path: Path) -> None:
    found = await clock_check.examine(context(tmp_path, synchronised=lambda: False))
    is_bad(of(found, "clock"), "warning", "not synchronised", "chrony")


async def test_without_any_information_the_check_of_the_clock_is_skipped(tmp_path: Path) -> None:
    found = await clock_check.examine(context(tmp_path, synchronised=lambda: None))
    assert of(found, "clock").verdict is Verdict.SKIPPED


def test_the_kernel_is_queried_and_its_clock_is_not_set() -> None:
    before = time.time()
    assert kernel_synchronised() in (True, False, None)
    assert abs(time.time() - before) < 60


@pytest.mark.slow
@pytest.mark.parametrize("synchronised", [True, False])
async def test_a_server_or_kubeconfig_that_hangs_does_not_prevent_other_findings(
    tmp_path: Path, *, synchronised: bool
) -> None:
    """One kubeconfig is a pipe, one server never responds, and one responds."""
    os.mkfifo(tmp_path / "pipe")
    with silent_server() as port:
        async with server_with_clock(0) as server:
            pods_at(tmp_path / "silent", f"http://127.0.0.1:{port}")
            pods_at(tmp_path / "responding", server)
            text = "sources:\n" + "".join(
                f"  {name}: {{kind: pods, kubeconfig: {tmp_path}/{name}}}\n"
                for name in ("pipe", "silent", "responding")
            )
            ctx = context(tmp_path, text, synchronised=lambda: synchronised, deadline=3.0)
            found = await clock_check.examine(ctx)
    assert [each.subject for each in found] == [
        f"the time in a response of {server}",
        "the kernel's clock (adjtimex)",
    ]
    assert found[1].verdict is (Verdict.OK if synchronised else Verdict.WARNING)
