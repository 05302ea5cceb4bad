"""Whether the configuration is in force as it was changed last, by podgpu's own gauge."""

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
from tests.pipeline.counters.test_list_keeper import BAD, ONE, TWO, until
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
def test_it_is_1_once_both_are_in_force(steps: list[Step], value: float | None) -> None:
    """One that was taken over hides no refusal of the other."""
    telemetry = Telemetry()
    attempts = ReloadAttempts(telemetry)
    for what, result in steps:
        if result == "same":
            attempts.note_unchanged(what)  # type: ignore[arg-type]
        else:
            attempts.count(what, result)  # type: ignore[arg-type]
    assert gauge(telemetry.collect({})) == value


class Reloaded:
    """Reads a file whose content is a configuration of the test's."""

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
async def test_a_file_as_it_changes(
    registered: Registered, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered.sources = {"gpus": gpus}
    one, two, three = (configured({"g": ("gpus", 0)}, {"k": ("keep", at)}) for at in range(3))
    async with running(one) as runtime:
        reloaded = Reloaded(runtime, monkeypatch)
        assert await reloaded(one) is None, "nothing was changed yet"
        assert await reloaded(two) == 1
        assert await reloaded(None) == 0
        assert await reloaded(two) == 1, "put back: what is in force is what stands there"
        keeper(registered).failures = [None, PermanentError("taken")]
        assert await reloaded(three) == 0
        assert await reloaded(three) == 1


async def test_a_list_of_counters_as_it_changes(registered: Registered, tmp_path: Path) -> None:
    registered.sources = {"gpus": gpus}
    path = tmp_path / "counters.csv"
    path.write_text(ONE)
    plain = configured({"g": ("gpus", 0)}, {"k": ("keep", 0)})
    config = msgspec.structs.replace(plain, counters=Counters(file=path, own=False))

    def given_out(runtime: Runtime, value: float) -> Callable[[], bool]:
        return lambda: gauge(runtime.telemetry()) == value

    async with running(config) as runtime:
        for text, value in ((TWO, 1), (BAD, 0), (TWO, 1), (BAD, 0), (ONE, 1), (BAD, 0)):
            path.write_text(text)
            await until(given_out(runtime, value))
        assert await runtime.reload(plain)
        assert gauge(runtime.telemetry()) == 1, "nobody looks at that list any more"


@pytest.mark.looptime
async def test_a_list_that_comes_with_a_file_and_is_none(
    registered: Registered, tmp_path: Path
) -> None:
    registered.sources = {"gpus": gpus}
    path = tmp_path / "counters.csv"
    path.write_text(BAD)
    plain = configured({"g": ("gpus", 0)}, {"k": ("keep", 0)})
    async with running(plain) as runtime:
        assert await runtime.reload(msgspec.structs.replace(plain, counters=Counters(file=path)))
        assert gauge(runtime.telemetry()) == 0
