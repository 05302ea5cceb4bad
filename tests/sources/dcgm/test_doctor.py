"""The findings of `podgpu doctor` about dcgm-exporter's page, for each fault."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from config.value_types import Duration
from pipeline.component.findings import Finding, Verdict
from pipeline.diagnostics.check_runner import findings_of
from sources.dcgm.doctor import examine
from sources.dcgm.options import Options
from tests.podgpu.doctor.support import context, is_bad, of, page, serving
from tests.sources.dcgm.reading import PAGES

PAGE = (PAGES / "4.2.prom").read_bytes()


async def examined(folder: Path, options: Options) -> Finding:
    return of(await findings_of(partial(examine, options, context(folder / "ctx"))), "dcgm.page")


@asynccontextmanager
async def exporter(text: bytes) -> AsyncIterator[str]:
    async with serving(lambda _: page(text)) as port:
        yield f"http://127.0.0.1:{port}/metrics"


async def test_a_page_of_dcgm_exporter_is_ok(tmp_path: Path) -> None:
    async with exporter(PAGE) as url:
        finding = await examined(tmp_path, Options(url=url))
    assert finding.verdict is Verdict.OK
    assert finding.subject == url
    assert "devices" in finding.observed


async def test_an_unreachable_exporter_is_a_failure(tmp_path: Path) -> None:
    async with exporter(b"") as url:
        pass
    finding = await examined(tmp_path, Options(url=url))
    is_bad(finding, "failure", "can't connect", "check that dcgm-exporter runs")


async def test_a_page_of_another_exporter_is_a_failure(tmp_path: Path) -> None:
    async with exporter(b"node_load1 1\n") as url:
        finding = await examined(tmp_path, Options(url=url))
    is_bad(
        finding, "failure", "no metric of dcgm-exporter", "set url to the page of a dcgm-exporter"
    )


@pytest.mark.parametrize("status", ["200 OK", "401 Unauthorized"])
async def test_podgpu_s_own_page_is_a_failure(tmp_path: Path, status: str) -> None:
    async with serving(lambda _: page(PAGE, "Server: podgpu", status=status)) as port:
        finding = await examined(tmp_path, Options(url=f"http://127.0.0.1:{port}/metrics"))
    is_bad(finding, "failure", "podgpu itself responds there", "localhost:9401")


async def test_a_missing_file_is_a_failure(tmp_path: Path) -> None:
    finding = await examined(tmp_path, Options(path=tmp_path / "dcgm.prom"))
    is_bad(finding, "failure", "no such file", "mount its folder")


async def test_an_outdated_file_is_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "dcgm.prom"
    path.write_bytes(PAGE)

    os.utime(path, (1_700_000_000, 1_700_000_000))
    finding = await examined(tmp_path, Options(path=path, max_age=Duration.parse("1m")))
    is_bad(finding, "failure", "has not been updated", "check that dcgm-exporter writes the file")


@pytest.mark.parametrize("body", [PAGE, b"node_load1 1\n"])
async def test_the_query_of_the_url_is_not_shown(tmp_path: Path, body: bytes) -> None:
    async with exporter(body) as url:
        found = [await examined(tmp_path / "there", Options(url=f"{url}?token=hunter2"))]
    found.append(await examined(tmp_path / "gone", Options(url=f"{url}?token=hunter2")))
    for finding in found:
        assert finding.subject == url
        assert "hunter2" not in str(finding)
