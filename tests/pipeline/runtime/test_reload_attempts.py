"""Tests of podgpu's gauge of whether the last reload succeeded."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from config.errors import ConfigError
from config.schema import Config, Counters
from pipeline.base.errors import PermanentError
from pipeline.base.telemetry import FamilyPoints, Telemetry
from pipeline.runtime import daemon
from pipeline.runtime.config_reload import ReloadAttempts
from pipeline.runtime.runtime import Runtime
from tests.pipeline.counters.test_list_follower import BAD, ONE, TWO, until
from tests.pipeline.runtime.runtimes import gpus, keeper, registered, running
from tests.support.components import Registered, configured

__all__ = ["registered"]

Step = tuple[str, str]


def gauge(families: list[FamilyPoints]) -> float | None:
    for family, points in families:
        if family.name == "podgpu_config_reload_last_successful":
            (point,) = points
            assert point.labels == ()
            return point.value
    return None


ATTEMPTS: list[tuple[list[Step], float | None]] = [
    ([], None),
    ([("configuration", "same")], None),
    ([("configuration", "done")], 1),
    ([("configuration", "refused")], 0),
    ([("configuration", "failed")], 0),
    ([("configuration", "done"), ("configuration", "refused")], 0),
    ([("configuration", "refused"), ("configuration", "done")], 1),
    ([("configuration", "refused"), ("configuration", "same")], 1),
    ([("configuration", "refused"), ("counters", "done")], 0),
    ([("counters", "failed"), ("configuration", "done"), ("configuration", "same")], 0),
    ([("counters", "refused"), ("configuration", "refused"), ("counters", "same")], 0),
]


@pytest.mark.parametrize(("steps", "value"), ATTEMPTS)
def test_the_gauge_is_1_once_configuration_and_counters_are_in_force(
    steps: list[Step], value: float | None
) -> None:
    """A success of one does not hide a failure of the other."""
    telemetry = Telemetry()
    attempts = ReloadAttempts(telemetry)
    for what, result in steps:
        if result == "same":
            attempts.note_unchanged(what)  # type: ignore[arg-type]
        else:
            attempts.count(what, result)  # type: ignore[arg-type]
    assert gauge(telemetry.collect({})) == value


class FakeFile:
    """Reloads from a configuration file whose content the test sets."""

    def __init__(self, runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
        self._runtime = runtime
        self._file: Config | None = None
        monkeypatch.setattr(daemon, "load", self._load)

    def _load(self, path: Path, *_: object, **__: object) -> Config:
        if self._file is None:
            raise ConfigError(str(path), [])
        return self._file

    async def __call__(self, file: Config | None) -> float | None:
        self._file = file
        await daemon.reload(self._runtime, Path("podgpu.yaml"))
        return gauge(self._runtime.telemetry())


@pytest.mark.looptime
async def test_the_gauge_follows_changes_of_the_configuration_file(
    registered: Registered, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered.sources = {"gpus": gpus}
    one, two, three = (configured({"g": ("gpus", 0)}, {"k": ("keep", at)}) for at in range(3))
    async with running(one) as runtime:
        reload_with = FakeFile(runtime, monkeypatch)
        assert await reload_with(one) is None, "nothing has changed yet"
        assert await reload_with(two) == 1
        assert await reload_with(None) == 0
        assert await reload_with(two) == 1, "the file has the configuration in force again"
        keeper(registered).failures = [None, PermanentError("taken")]
        assert await reload_with(three) == 0
        assert await reload_with(three) == 1


@pytest.mark.slow
async def test_the_gauge_follows_changes_of_the_counters_file(
    registered: Registered, tmp_path: Path
) -> None:
    registered.sources = {"gpus": gpus}
    path = tmp_path / "counters.csv"
    path.write_text(ONE)
    plain = configured({"g": ("gpus", 0)}, {"k": ("keep", 0)})
    config = msgspec.structs.replace(plain, counters=Counters(file=path, own=False))

    def gauge_is(runtime: Runtime, value: float) -> Callable[[], bool]:
        return lambda: gauge(runtime.telemetry()) == value

    async with running(config) as runtime:
        for text, value in ((TWO, 1), (BAD, 0), (TWO, 1), (BAD, 0), (ONE, 1), (BAD, 0)):
            path.write_text(text)
            await until(gauge_is(runtime, value))
        assert await runtime.reload(plain)
        assert gauge(runtime.telemetry()) == 1, "the counters file is no longer used"


@pytest.mark.looptime
async def test_a_new_configuration_with_an_invalid_counters_file_sets_the_gauge_to_0(
    registered: Registered, tmp_path: Path
) -> None:
    registered.sources = {"gpus": gpus}
    path = tmp_path / "counters.csv"
    path.write_text(BAD)
    plain = configured({"g": ("gpus", 0)}, {"k": ("keep", 0)})
    async with running(plain) as runtime:
        assert await runtime.reload(msgspec.structs.replace(plain, counters=Counters(file=path)))
        assert gauge(runtime.telemetry()) == 0
