"""The counters list is reread on every change, and an invalid list never replaces a valid one."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from config.schema import Counters
from pipeline.counters import list_source
from pipeline.counters.list_follower import DEFAULT_TEXT, KEPT_TEXT, CountersFollower
from pipeline.counters.list_source import ListUnavailableError
from pipeline.fields import FieldPlan
from pipeline.kube.sessions import Sessions
from tests.pipeline.counters.configmaps import ConfigMap, Mounted, nowhere, refuse, served

LOG = logging.getLogger("podgpu.test")
ONE = "DCGM_FI_DEV_GPU_UTIL, gauge, One.\n"
TWO = ONE + "DCGM_FI_DEV_FB_USED, gauge, Two.\n"
BAD = "not a list\n"


class Followed:
    """A keeper, and the plans that it has passed on."""

    def __init__(self, keeper: CountersFollower) -> None:
        self.keeper = keeper
        self.plans: list[list[str]] = []
        self.requested: list[bool] = []
        self.counted: list[str] = []

    async def take(self, plan: FieldPlan, requested: bool) -> None:
        self.plans.append([row.help for row in plan.rows])
        self.requested.append(requested)

    async def reaches(self, *plans: list[str]) -> None:
        await until(lambda: len(self.plans) >= len(plans))
        await asyncio.sleep(0.3)
        assert self.plans == list(plans)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


def list_of(plan: FieldPlan | None) -> list[str] | None:
    return None if plan is None else [row.help for row in plan.rows]


@asynccontextmanager
async def followed(
    setting: Counters, *, first: list[str] | None, connect: list_source.Connect = nowhere
) -> AsyncIterator[Followed]:
    counted: list[str] = []
    found = Followed(CountersFollower(setting, connect, LOG, counted.append))
    found.counted = counted
    assert list_of(await found.keeper.first(DEFAULT_TEXT)) == first
    task = asyncio.create_task(found.keeper.follow(found.take))
    try:
        await asyncio.sleep(0.05)
        yield found
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "counters.csv"
    path.write_text(ONE)
    return path


def setting_of(path: Path) -> Counters:
    return Counters(file=path, own=False)


class TestFile:
    @pytest.mark.slow
    async def test_a_file_that_is_overwritten_is_read(self, path: Path) -> None:
        async with followed(setting_of(path), first=["One."]) as found:
            path.write_text(TWO)
            await found.reaches(["One.", "Two."])

    @pytest.mark.slow
    async def test_a_file_that_is_replaced_by_rename_is_read(self, path: Path) -> None:
        async with followed(setting_of(path), first=["One."]) as found:
            new = path.with_suffix(".new")
            new.write_text(TWO)
            new.replace(path)
            await found.reaches(["One.", "Two."])

    @pytest.mark.slow
    async def test_an_update_of_a_mounted_configmap_is_read(self, tmp_path: Path) -> None:
        mounted = Mounted(tmp_path, ONE)
        async with followed(setting_of(mounted.path), first=["One."]) as found:
            mounted.swap(TWO)
            await found.reaches(["One.", "Two."])
            mounted.swap(ONE)
            await found.reaches(["One.", "Two."], ["One."])

    @pytest.mark.slow
    async def test_a_change_before_the_watch_starts_is_not_lost(self, path: Path) -> None:
        found = Followed(CountersFollower(setting_of(path), nowhere, LOG, lambda _: None))
        await found.keeper.first(DEFAULT_TEXT)
        path.write_text(TWO)
        task = asyncio.create_task(found.keeper.follow(found.take))
        await found.reaches(["One.", "Two."])
        task.cancel()
        await asyncio.wait([task])

    @pytest.mark.slow
    async def test_a_partly_written_list_is_not_used(self, path: Path) -> None:
        async with followed(setting_of(path), first=["One."]) as found:
            with path.open("w") as file:
                for piece in (TWO[:20], TWO[20:40], TWO[40:60], TWO[60:]):
                    file.write(piece)
                    file.flush()
                    await asyncio.sleep(0.05)
            await found.reaches(["One.", "Two."])

    @pytest.mark.slow
    async def test_writing_the_same_content_again_is_no_change(self, path: Path) -> None:
        async with followed(setting_of(path), first=["One."]) as found:
            path.write_text(ONE)
            await asyncio.sleep(0.5)
            await found.reaches()

    @pytest.mark.slow
    @pytest.mark.parametrize("bad", [BAD, "", "# nothing\n", "\0\0\0"])
    async def test_a_list_without_usable_rows_is_refused(
        self, path: Path, bad: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with followed(setting_of(path), first=["One."]) as found:
            path.write_text(bad)
            await until(lambda: found.counted)
            assert KEPT_TEXT in caplog.text
            path.write_text(TWO)
            await found.reaches(["One.", "Two."])
            assert found.counted == ["refused"]

    @pytest.mark.slow
    async def test_a_removed_file_is_reported_once_and_read_when_it_is_back(
        self, path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(list_source, "_POLL", 0.1)
        caplog.set_level("INFO")
        async with followed(setting_of(path), first=["One."]) as found:
            path.unlink()
            await until(lambda: found.counted)
            await asyncio.sleep(1)
            assert (
                caplog.text.count(
                    f"{path}: no such file; check the path, and that it is mounted; {KEPT_TEXT}"
                )
                == 1
            )
            path.write_text(TWO)
            await found.reaches(["One.", "Two."])
            assert "can be read again" in caplog.text
            assert found.counted == ["refused"]

    @pytest.mark.slow
    async def test_a_file_that_comes_back_unchanged_is_passed_on(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Otherwise the runtime would not learn that the list is valid again."""
        monkeypatch.setattr(list_source, "_POLL", 0.1)
        async with followed(setting_of(path), first=["One."]) as found:
            path.unlink()
            await until(lambda: found.counted)
            path.write_text(ONE)
            await found.reaches(["One."])
            assert found.requested == [False]

    @pytest.mark.slow
    async def test_an_invalid_row_is_reported_and_the_other_rows_are_used(
        self, path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with followed(setting_of(path), first=["One."]) as found:
            path.write_text(f"{TWO}DCGM_FI_DEV_FB_FRE, gauge, x\n")
            await found.reaches(["One.", "Two."])
            assert f"{path}: a row is ignored:\n  line 3: DCGM_FI_DEV_FB_FRE" in caplog.text

    @pytest.mark.slow
    async def test_a_requested_reread_passes_the_list_on_even_if_unchanged(
        self, path: Path
    ) -> None:
        async with followed(setting_of(path), first=["One."]) as found:
            await asyncio.sleep(0.5)
            assert found.keeper.ask()
            await found.reaches(["One."])
            assert found.requested == [True]

    @pytest.mark.slow
    async def test_without_inotify_the_file_is_polled(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse_all(*_: object, **__: object) -> None:
            raise OSError(24, "no more inotify instances")

        monkeypatch.setattr("pipeline.files.file_watch.Inotify", refuse_all)
        async with followed(setting_of(path), first=["One."]) as found:
            new = path.with_suffix(".new")
            new.write_text(TWO)
            new.replace(path)
            await found.reaches(["One.", "Two."])

    async def test_invalid_utf8_in_a_help_text_is_replaced(self, path: Path) -> None:
        path.write_bytes(b"DCGM_FI_DEV_GPU_TEMP, gauge, In \xb0C.\n")
        async with followed(setting_of(path), first=["In \ufffdC."]):
            pass

    async def test_a_missing_file_fails_at_the_start(self, tmp_path: Path) -> None:
        keeper = CountersFollower(setting_of(tmp_path / "none.csv"), nowhere, LOG, lambda _: None)
        with pytest.raises(ListUnavailableError, match=r"none\.csv: no such file"):
            await keeper.first(DEFAULT_TEXT)

    async def test_a_file_that_only_its_mount_keeps_is_used_and_reported(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """As with a subPath mount of a file that was removed or replaced outside."""
        with path.open() as kept:
            path.unlink()
            orphan = Path(f"/proc/self/fd/{kept.fileno()}")
            async with followed(setting_of(orphan), first=["One."]) as found:
                await until(lambda: found.counted)
                assert "mount the folder instead of the file" in caplog.text
                assert found.plans == []


class TestConfigMap:
    @pytest.fixture(autouse=True)
    def short_intervals(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(list_source, "_REQUEST_INTERVAL", 0.1)

    @pytest.mark.slow
    async def test_a_configmap_is_read_at_the_start_and_after_changes(self, tmp_path: Path) -> None:
        configmap = ConfigMap(metrics=ONE, other="x")
        async with served(configmap).serving() as server:
            setting = Counters(
                configmap="gpu:counters", kubeconfig=server.kubeconfig(tmp_path / "k"), own=False
            )
            async with followed(setting, first=["One."], connect=Sessions().session) as found:
                configmap.data = {"metrics": TWO}
                await found.reaches(["One.", "Two."])
                configmap.data = {"metrics": BAD}
                await until(lambda: found.counted)
                configmap.data = {"metrics": ONE}
                await found.reaches(["One.", "Two."], ["One."])
                assert found.counted == ["refused"]

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("code", "reason", "expected"),
        [
            (404, "NotFound", "404 NotFound"),
            (
                403,
                "Forbidden",
                'resources ["configmaps"], resourceNames ["counters"], verbs [get]',
            ),
            (500, "InternalError", "500 InternalError"),
        ],
    )
    async def test_a_configmap_that_cannot_be_read_is_requested_again(
        self,
        tmp_path: Path,
        code: int,
        reason: str,
        expected: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        configmap = ConfigMap(metrics=ONE)
        server = served(configmap)
        refuse(server, code, reason)
        async with server.serving():
            setting = Counters(
                configmap="gpu:counters", kubeconfig=server.kubeconfig(tmp_path / "k"), own=False
            )
            async with followed(setting, first=None, connect=Sessions().session) as found:
                await until(lambda: len(server.requests) > 3)
                assert caplog.text.count(expected) == 1
                assert DEFAULT_TEXT in caplog.text
                server.refusals.clear()
                await found.reaches(["One."])

    @pytest.mark.parametrize(
        ("data", "expected"),
        [({"default.csv": ONE}, "its keys: default.csv"), ({}, "its keys: none")],
    )
    async def test_a_configmap_without_the_key_is_reported(
        self, tmp_path: Path, data: dict[str, str], expected: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with served(ConfigMap(**data)).serving() as server:
            setting = Counters(
                configmap="gpu:counters", kubeconfig=server.kubeconfig(tmp_path / "k")
            )
            async with followed(setting, first=None, connect=Sessions().session):
                assert (
                    "ConfigMap gpu:counters: the key metrics with the counters list is missing; "
                    f"{expected}" in caplog.text
                )

    async def test_an_unreachable_api_server_does_not_block_the_start(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        server = served(ConfigMap(metrics=ONE))
        async with server.serving():
            kubeconfig = server.kubeconfig(tmp_path / "k")
        setting = Counters(configmap="gpu:counters", kubeconfig=kubeconfig)
        async with followed(setting, first=None, connect=Sessions().session):
            assert "; retrying" in caplog.text
