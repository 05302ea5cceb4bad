"""`clock`, provoked."""

import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path

import pytest

from pipeline.component.findings import Verdict
from pipeline.diagnostics import clock_sync
from podgpu.doctor import clock_check
from tests.podgpu.doctor.silent import silent
from tests.podgpu.doctor.support import context, is_bad, of, page, serving, write


@asynccontextmanager
async def dated(ahead: float) -> AsyncIterator[str]:
    """A server whose clock is so many seconds ahead; 401 for everybody, as API servers may be."""

    def answer(_: str) -> bytes:
        date = formatdate(time.time() + ahead, usegmt=True)
        return page(b"", f"Date: {date}", status="401 Unauthorized")

    async with serving(answer) as port:
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


@pytest.mark.parametrize(("ahead", "verdict", "word"), CLOCKS)
async def test_the_clock_is_held_against_the_api_server_s(
    tmp_path: Path, ahead: float, verdict: Verdict, word: str
) -> None:
    async with dated(ahead) as server:
        ctx = context(tmp_path, pods_at(tmp_path / "kubeconfig", server), synchronised=lambda: None)
        found = await clock_check.examine(ctx)
    given_out = of(found, "clock")
    assert given_out.verdict is verdict, given_out
    assert server in given_out.subject
    if word:
        is_bad(given_out, verdict.value, f"s {word}", "chrony")


async def test_an_address_that_is_none_is_no_clock_s_fault(tmp_path: Path) -> None:
    ctx = context(tmp_path, pods_at(tmp_path / "kubeconfig", "https://127.0.0.1:notaport"))
    assert of(await clock_check.examine(ctx), "clock").verdict is Verdict.OK, "the kernel's word"


async def test_a_sink_s_api_server_will_do_and_each_is_asked_once(tmp_path: Path) -> None:
    async with dated(0) as server:
        source = pods_at(tmp_path / "kubeconfig", server)
        sinks = f"sinks: {{n: {{kind: node, kubeconfig: {tmp_path}/kubeconfig}}}}\n"
        for folder, text in (("a", sinks), ("b", source + sinks)):
            ctx = context(tmp_path / folder, text, synchronised=lambda: None)
            assert of(await clock_check.examine(ctx), "clock").verdict is Verdict.OK


async def test_a_clock_that_no_one_keeps_right_is_a_warning(tmp_path: Path) -> None:
    found = await clock_check.examine(context(tmp_path, synchronised=lambda: False))
    is_bad(of(found, "clock"), "warning", "not synchronised", "chrony")


async def test_without_a_word_of_anybody_the_clock_is_not_judged(tmp_path: Path) -> None:
    found = await clock_check.examine(context(tmp_path, synchronised=lambda: None))
    assert of(found, "clock").verdict is Verdict.SKIPPED


def test_the_kernel_is_asked_and_nothing_is_set() -> None:
    before = time.time()
    assert clock_sync.kernel_synchronised() in (True, False, None)
    assert abs(time.time() - before) < 60


@pytest.mark.parametrize("synchronised", [True, False])
async def test_a_server_or_a_kubeconfig_that_hangs_costs_no_other_word(
    tmp_path: Path, *, synchronised: bool
) -> None:
    """A pipe in a kubeconfig's place, a server that says nothing, and one that does."""
    os.mkfifo(tmp_path / "pipe")
    with silent() as port:
        async with dated(0) as server:
            pods_at(tmp_path / "mute", f"http://127.0.0.1:{port}")
            pods_at(tmp_path / "well", server)
            text = "sources:\n" + "".join(
                f"  {name}: {{kind: pods, kubeconfig: {tmp_path}/{name}}}\n"
                for name in ("pipe", "mute", "well")
            )
            ctx = context(tmp_path, text, synchronised=lambda: synchronised, deadline=3.0)
            found = await clock_check.examine(ctx)
    assert [each.subject for each in found] == [
        f"the time in a response of {server}",
        "the kernel's clock (adjtimex)",
    ]
    assert found[1].verdict is (Verdict.OK if synchronised else Verdict.WARNING)
