"""The page, letter for letter: dashboards and rules depend on names and labels.

`PODGPU_WRITE_GOLDEN=1` writes the files anew; look at the difference before you keep it.
"""

import os
from pathlib import Path

import pytest

from sinks.prometheus.shape import INFO_FAMILIES
from sinks.prometheus.text import Format
from tests.sinks.prometheus.pages import SCENES, context, of, parsed, scraped, sink_showing

FOLDER = Path(__file__).parents[2] / "golden" / "prometheus"
SUFFIX = {Format.TEXT: "txt", Format.OPENMETRICS: "om"}


@pytest.mark.parametrize("form", Format)
@pytest.mark.parametrize("scene", SCENES)
async def test_page(scene: str, form: Format) -> None:
    snapshot = SCENES[scene]()
    page = await scraped(sink_showing(snapshot, context()), form)
    parsed(page, form)
    file = FOLDER / f"{scene}.{SUFFIX[form]}"
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(page)
    assert page.decode() == file.read_bytes().decode()


@pytest.mark.parametrize("scene", SCENES)
async def test_both_formats_say_the_same(scene: str) -> None:
    sink = sink_showing(SCENES[scene](), context())
    text = await scraped(sink, Format.TEXT)
    openmetrics = await scraped(sink, Format.OPENMETRICS)
    assert openmetrics.endswith(b"\n# EOF\n")
    assert b"EOF" not in text.splitlines()[-1]
    assert parsed(text) == parsed(openmetrics, Format.OPENMETRICS)


@pytest.mark.parametrize("scene", SCENES)
async def test_every_reading_is_on_the_page(scene: str) -> None:
    snapshot = SCENES[scene]()
    series = parsed(await scraped(sink_showing(snapshot)))
    expected = len(snapshot.readings) if snapshot else 0
    own: tuple[str, ...] = ("podgpu_device_", "podgpu_build", "podgpu_source", "podgpu_sample")
    own += tuple(name for name, _ in INFO_FAMILIES)
    assert sum(not name.startswith(own) for name, _ in series) == expected


async def test_values_come_back(capsys: pytest.CaptureFixture[str]) -> None:
    series = parsed(await scraped(sink_showing(SCENES["plain-gpus"]())))
    used = {labels["gpu"]: value for labels, value in of(series, "DCGM_FI_DEV_FB_USED")}
    assert used == {"0": 1.5, "1": 2.5, "2": 3.5}  # MiB, as with DCGM
    total = [value for _, value in of(series, "DCGM_FI_DEV_FB_TOTAL")]
    assert total == [81_559] * 3
    assert b"DCGM_FI_DEV_FB_TOTAL{" in (page := await scraped(sink_showing(SCENES["plain-gpus"]())))
    assert b"} 81559\n" in page  # whole numbers stay whole
    assert b"} 9007199254740994\n" in page  # integers beyond 2^53 stay exact
