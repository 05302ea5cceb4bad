"""The dcgm source while it runs: over HTTP and from a file, and its failures."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from config.value_types import ByteSize, Duration
from pipeline.base.errors import TransientError
from pipeline.fields import FieldPlan
from pipeline.model import NS, DevicesDiscovered, SamplesTaken
from sources.dcgm.options import Options
from sources.dcgm.source import DcgmSource
from tests.sources.dcgm.reading import PAGES, A, B, line
from tests.support.contexts import FakeSourceContext
from tests.support.pages import PageServer, authority, hangs, says
from tests.support.running import running

CLOCK = "DCGM_FI_DEV_SM_CLOCK"
SECOND = Duration.parse("1s")
PAGE = (PAGES / "2.4.prom").read_text()


def dropped(ctx: FakeSourceContext) -> dict[str, float]:
    return {
        dict(point.labels)["reason"]: point.value
        for family, points in ctx.telemetry.collect({})
        if family.name == "podgpu_source_dropped_total"
        for point in points
    }


class TestOverHttp:
    @pytest.mark.slow
    async def test_the_page_is_read_at_the_interval(self) -> None:
        async with PageServer(says(PAGE)).serving() as server:
            source = DcgmSource(Options(url=server.url, interval=SECOND))
            async with running(source, FakeSourceContext()) as ctx:
                await ctx.wait_for(SamplesTaken, 3)
        [found] = [event for event in ctx.events if isinstance(event, DevicesDiscovered)]
        assert [device.uuid for device in found.devices] == [A, B]
        # The first page takes longer: libraries are imported.
        _, first, second = [event for event in ctx.events if isinstance(event, SamplesTaken)][:3]
        assert {reading.good_for_ns for reading in first.readings} == {3_000_000_000}
        span = first.readings[0].at.seconds_until(second.readings[0].at)
        assert 0.9 < span < 2
        assert all("version=0.0.4" in head for head in server.heads)

    @pytest.mark.slow
    async def test_changed_devices_are_reported_again(self) -> None:
        async with PageServer(says(line(CLOCK, 1))).serving() as server:
            source = DcgmSource(Options(url=server.url, interval=SECOND))
            async with running(source, FakeSourceContext()) as ctx:
                await ctx.wait_for(SamplesTaken)
                server.answer = says(line(CLOCK, 1) + line(CLOCK, 2, 1))
                await ctx.wait_for(DevicesDiscovered, 2)

    async def test_only_fields_of_the_plan_are_read(self) -> None:
        async with PageServer(says(PAGE)).serving() as server:
            ctx = FakeSourceContext()
            ctx.plan = FieldPlan(["power_watts"])
            async with running(DcgmSource(Options(url=server.url)), ctx):
                [taken] = await ctx.wait_for(SamplesTaken)
        assert {reading.field for reading in taken.readings} == {"power_watts"}

    @pytest.mark.parametrize(
        ("page", "message"),
        [
            ("", "no metric of dcgm-exporter; check that url or path is that of its page"),
            ("<html>hello</html>", "no metric of dcgm-exporter"),
            ("# TYPE up gauge\nup 1\n", "no metric of dcgm-exporter"),
        ],
    )
    async def test_a_page_without_metrics_of_dcgm_exporter_is_an_error(
        self, page: str, message: str
    ) -> None:
        async with PageServer(says(page)).serving() as server:
            ctx = FakeSourceContext()
            with pytest.raises(TransientError, match=message):
                await DcgmSource(Options(url=server.url)).run(ctx)
        assert ctx.events == []

    async def test_a_hanging_exporter_and_an_oversized_page_are_errors(self) -> None:
        async with PageServer(hangs).serving() as server:
            short = Options(url=server.url, timeout=Duration.parse("100ms"))
            with pytest.raises(TransientError, match=r"no complete response within 0\.1 s"):
                await DcgmSource(short).run(FakeSourceContext())
            server.answer = says(PAGE)
            small = Options(url=server.url, max_size=ByteSize.parse("1KiB"))
            with pytest.raises(TransientError, match="larger than 1024 bytes"):
                await DcgmSource(small).run(FakeSourceContext())

    @pytest.mark.slow
    async def test_dropped_lines_are_counted_and_logged_once(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        broken = line(CLOCK, "x") + line(CLOCK, 5) + line(CLOCK, "NaN", 1) + f"{CLOCK} 4\n"
        async with PageServer(says(broken)).serving() as server:
            source = DcgmSource(Options(url=server.url, interval=SECOND))
            async with running(source, FakeSourceContext()) as ctx:
                await ctx.wait_for(SamplesTaken, 2)
                await asyncio.sleep(0.05)
        assert dropped(ctx) == {"malformed": 2, "blank": 2, "no_device": 2}
        assert caplog.text.count("cannot be parsed") == 1
        assert f"{server.url}: line 1: {CLOCK}" in caplog.text
        assert caplog.text.count("has no GPU uuid") == 1


class TestCredentials:
    @pytest.fixture
    def secret(self, tmp_path: Path) -> Path:
        path = tmp_path / "secret"
        path.write_text("p\u00e4ss:word\n")
        return path

    async def test_a_password_is_sent(self, secret: Path) -> None:
        async with PageServer(says(PAGE)).serving() as server:
            options = Options(url=server.url, username="eve", password_file=secret)
            async with running(DcgmSource(options), FakeSourceContext()) as ctx:
                await ctx.wait_for(SamplesTaken)
        assert "Authorization: Basic ZXZlOnDDpHNzOndvcmQ=" in server.heads[0]

    @pytest.mark.slow
    async def test_a_token_file_is_read_for_each_request(self, secret: Path) -> None:
        secret.write_text("one")
        async with PageServer(says(PAGE)).serving() as server:
            options = Options(url=server.url, bearer_token_file=secret, interval=SECOND)
            async with running(DcgmSource(options), FakeSourceContext()) as ctx:
                await ctx.wait_for(SamplesTaken)
                secret.write_text("two\n")
                await ctx.wait_for(SamplesTaken, 2)
        sent = [head.split("Bearer ")[1].split("\r")[0] for head in server.heads]
        assert sent == ["one", "two"]

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (None, "no such file; check that the file is mounted$"),
            ("a" * 70_000, "64KiB"),
            ("", "one line"),
            ("a\nb", "one line"),
        ],
    )
    async def test_a_secret_file_must_exist_and_hold_one_line(
        self, tmp_path: Path, content: str | None, message: str
    ) -> None:
        path = tmp_path / "token"
        if content is not None:
            path.write_text(content)
        options = Options(url="http://127.0.0.1:9/metrics", bearer_token_file=path)
        with pytest.raises(TransientError, match=message) as caught:
            await DcgmSource(options).run(FakeSourceContext())
        assert str(path) in str(caught.value)

    async def test_a_tls_server_needs_its_ca_file_or_insecure(self, tmp_path: Path) -> None:
        ca_file = tmp_path / "ca.pem"
        authority().cert_pem.write_to_path(ca_file)
        async with PageServer(says(PAGE), secure=True).serving() as server:
            for options in (
                Options(url=server.url, ca_file=ca_file),
                Options(url=server.url, insecure=True),
            ):
                async with running(DcgmSource(options), FakeSourceContext()) as ctx:
                    await ctx.wait_for(SamplesTaken)
            with pytest.raises(TransientError, match="TLS failed"):
                await DcgmSource(Options(url=server.url)).run(FakeSourceContext())


class TestFromAFile:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "dcgm.prom"
        path.write_text(PAGE)
        return path

    @pytest.mark.slow
    async def test_a_file_is_read_when_it_has_changed(self, path: Path) -> None:
        source = DcgmSource(Options(path=path, interval=SECOND))
        async with running(source, FakeSourceContext()) as ctx:
            [first] = await ctx.wait_for(SamplesTaken)
            await asyncio.sleep(1.3)
            assert len([e for e in ctx.events if isinstance(e, SamplesTaken)]) == 1
            path.write_text(line(CLOCK, 7))
            _, second = await ctx.wait_for(SamplesTaken, 2)
        assert len(first.readings) > len(second.readings) == 1
        # Valid for max_age, after which the file is outdated.
        assert second.readings[0].good_for_ns == 60_000_000_000

    async def test_a_file_older_than_max_age_is_an_error(self, path: Path) -> None:
        old = time.time() - 100
        os.utime(path, (old, old))
        ctx = FakeSourceContext()
        with pytest.raises(TransientError, match="not been updated for 60 s"):
            await DcgmSource(Options(path=path)).run(ctx)
        assert ctx.events == []
        options = Options(path=path, max_age=Duration.parse("5m"))
        async with running(DcgmSource(options), FakeSourceContext()) as ctx:
            await ctx.wait_for(SamplesTaken)

    @pytest.mark.slow
    async def test_a_file_that_gets_too_old_while_the_source_runs_is_an_error(
        self, path: Path
    ) -> None:
        options = Options(path=path, interval=SECOND)
        ctx = FakeSourceContext()
        task = asyncio.create_task(DcgmSource(options).run(ctx))
        await ctx.wait_for(SamplesTaken)
        old = time.time() - 61
        os.utime(path, (old, old))
        with pytest.raises(TransientError, match="check that the exporter runs"):
            await task

    async def test_a_file_with_a_time_in_the_future_is_not_too_old(self, path: Path) -> None:
        ahead = time.time() + 1000
        os.utime(path, (ahead, ahead))
        async with running(DcgmSource(Options(path=path)), FakeSourceContext()) as ctx:
            await ctx.wait_for(SamplesTaken)

    async def test_a_missing_or_oversized_file_is_an_error(
        self, path: Path, tmp_path: Path
    ) -> None:
        with pytest.raises(TransientError, match="no such file; check that the exporter runs"):
            await DcgmSource(Options(path=tmp_path / "x.prom")).run(FakeSourceContext())
        small = Options(path=path, max_size=ByteSize.parse("1KiB"))
        with pytest.raises(TransientError, match="larger than the maximum of 1KiB; raise max_size"):
            await DcgmSource(small).run(FakeSourceContext())

    @pytest.mark.parametrize(("age", "expected"), [(0, 0), (200, 200), (-100, 0)])
    async def test_a_reading_has_the_age_of_the_file(
        self, tmp_path: Path, age: float, expected: float
    ) -> None:
        path = tmp_path / "dcgm.prom"
        path.write_text(PAGE)
        os.utime(path, (time.time() - age,) * 2)
        options = Options(path=path, max_age=Duration.parse("5m"))
        async with running(DcgmSource(options), FakeSourceContext()) as ctx:
            [taken, *_] = await ctx.wait_for(SamplesTaken)
        now = ctx.clock.now()
        for reading in taken.readings:
            assert reading.good_for_ns == 300 * NS, "counted from the time of the file"
            assert expected <= (now.mono_ns - reading.at.mono_ns) / NS + 0.01 < expected + 10
            assert expected <= (now.wall_ns - reading.at.wall_ns) / NS + 0.01 < expected + 10
