from pathlib import Path

from config.value_types import ByteSize, Duration
from pipeline.component.contracts import Source
from pipeline.component.registry import KINDS, build_source, load
from sources.podlist.options import Options


def test_default_options() -> None:
    assert Options() == Options(
        path=Path("/var/lib/kubelet/pod-resources/podlist.json"),
        integers="minor",
        max_age=Duration(300),
        interval=Duration(10),
        max_size=ByteSize(10 * 1024 * 1024),
    )


def test_the_source_is_registered() -> None:
    assert load(KINDS["source", "podlist"].options) is Options
    source: Source = build_source("podlist", Options())
    assert callable(source.run)
