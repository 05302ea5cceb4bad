"""Problems that the check of a configuration reports for this sink's options."""

from pathlib import Path

import pytest

from config.errors import ConfigError
from config.loader import parse
from pipeline.component.registry import RegisteredKinds
from sinks.podlist.options import Options


@pytest.mark.parametrize("path", ["/", "/data/..", ""])
def test_a_path_of_a_folder_is_refused(path: str) -> None:
    [(key, text)] = Options(path=Path(path)).problems()
    assert (key, text) == ("path", f"{Path(path)} is a folder: give the path of a file")


def test_two_sinks_may_not_use_the_same_file() -> None:
    text = (
        "sources: {g: {kind: nvml}}\n"
        "sinks:\n"
        "  a: {kind: podlist}\n"
        "  b: {kind: podlist, path: /var/lib/kubelet/../kubelet/pod-resources/podlist.json}\n"
        "  c: {kind: podlist, path: /tmp/others, write: inplace, ids: minor}\n"
        "  d: {kind: jsonl, path: /tmp/others}\n"
    )
    with pytest.raises(ConfigError) as caught:
        parse(text, RegisteredKinds(), env={}, origin="f")
    assert [problem.path for problem in caught.value.problems] == ["sinks.b", "sinks.d"]
    assert "a already uses the file /var/lib/kubelet/pod-resources/podlist.json" in str(
        caught.value
    )


def test_a_source_and_a_sink_may_use_the_same_file() -> None:
    text = "sources: {g: {kind: nvml}, p: {kind: podlist}}\nsinks: {p: {kind: podlist}}\n"
    parse(text, RegisteredKinds(), env={}, origin="f")
