"""What the doctor says of dcgm-exporter's page, each fault provoked."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from config.value_types import Duration
from pipeline.component.findings import Finding, Verdict
from sources.dcgm.doctor import examine
from sources.dcgm.options import Options
from tests.podgpu.doctor.support import context, is_bad, of, page, serving
from tests.sources.dcgm.reading import PAGES

PAGE = (PAGES / "4.2.prom").read_bytes()


async def looked(folder: Path, options: Options) -> Finding:
    return of(await examine(options, context(folder / "ctx")), "dcgm.page")


@asynccontextmanager
async def exporter(text: bytes) -> AsyncIterator[str]:
    async with serving(lambda _: page(text)) as port:
        yield f"http://127.0.0.1:{port}/metrics"


async def test_a_page_is_well(tmp_path: Path) -> None:
    async with exporter(PAGE) as url:
        given_out = await looked(tmp_path, Options(url=url))
    assert given_out.verdict is Verdict.OK
    assert given_out.subject == url
    assert "devices" in given_out.observed


async def test_no_one_listens(tmp_path: Path) -> None:
    async with exporter(b"") as url:
        pass
    given_out = await looked(tmp_path, Options(url=url))
    is_bad(given_out, "failure", "can't connect", "check that dcgm-exporter runs")


async def test_a_page_of_someone_else(tmp_path: Path) -> None:
    async with exporter(b"node_load1 1\n") as url:
        given_out = await looked(tmp_path, Options(url=url))
    is_bad(
        given_out, "failure", "no metric of dcgm-exporter", "set url to the page of a dcgm-exporter"
    )


@pytest.mark.parametrize("status", ["200 OK", "401 Unauthorized"])
async def test_podgpu_s_own_page_is_no_dcgm_exporter_s(tmp_path: Path, status: str) -> None:
    async with serving(lambda _: page(PAGE, "Server: podgpu", status=status)) as port:
        given_out = await looked(tmp_path, Options(url=f"http://127.0.0.1:{port}/metrics"))
    is_bad(given_out, "failure", "podgpu itself responds there", "localhost:9401")


async def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    given_out = await looked(tmp_path, Options(path=tmp_path / "dcgm.prom"))
    is_bad(given_out, "failure", "no such file", "mount its folder")


async def test_a_file_that_no_one_writes_any_more(tmp_path: Path) -> None:
    path = tmp_path / "dcgm.prom"
    path.write_bytes(PAGE)

    os.utime(path, (1_700_000_000, 1_700_000_000))
    given_out = await looked(tmp_path, Options(path=path, max_age=Duration.parse("1m")))
    is_bad(given_out, "failure", "has not been updated", "check that dcgm-exporter writes the file")


@pytest.mark.parametrize("body", [PAGE, b"node_load1 1\n"])
async def test_a_query_may_be_a_secret_and_is_not_reported(tmp_path: Path, body: bytes) -> None:
    async with exporter(body) as url:
        found = [await looked(tmp_path / "there", Options(url=f"{url}?token=hunter2"))]
    found.append(await looked(tmp_path / "gone", Options(url=f"{url}?token=hunter2")))
    for given_out in found:
        assert given_out.subject == url
        assert "hunter2" not in str(given_out)
