"""The page of installation: what it has people run, and what it says stays behind."""

import re
from pathlib import Path

import msgspec
import pytest

from pipeline.component.registry import RegisteredKinds
from tests.deploy.places import CHART, DOCS

PAGE = (DOCS / "install.md").read_text(encoding="utf-8")
UNINSTALL = PAGE[PAGE.index("## Uninstall") :]
KINDS = RegisteredKinds()


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.name))
def test_nothing_is_asked_before_a_forward_listens(page: Path) -> None:
    """`port-forward` in the background listens some time after the next command has asked."""
    text = page.read_text(encoding="utf-8")
    forwards = [line for line in text.splitlines() if "port-forward" in line]
    assert [line for line in forwards if re.search(r"&\s*\S", line)] == []


def stays(kind: str) -> bool:
    """Whether a sink of that kind leaves by default what it wrote at the API server."""
    fields = {
        field.name: field.default for field in msgspec.structs.fields(KINDS.options("sink", kind))
    }
    return fields.get("remove") == "never"


def test_what_sinks_leave_in_the_cluster_is_reported_with_the_way_out() -> None:
    leaving = [kind for kind in KINDS.names("sink") if stays(kind)]
    assert leaving
    for kind in leaving:
        assert f"[{kind}](sinks/{kind}.md)" in UNINSTALL
    assert "`remove: now`" in UNINSTALL


def test_folders_that_the_kubelet_makes_are_reported_of() -> None:
    made = (CHART / "templates" / "daemonset.yaml").read_text(encoding="utf-8")
    assert ("type: DirectoryOrCreate" in made) == ("`DirectoryOrCreate`" in UNINSTALL)


@pytest.mark.parametrize("word", ["x86_64-linux-gnu", "aarch64-linux-gnu", "lib64"])
def test_where_the_driver_s_library_is_is_reported_for_each_system(word: str) -> None:
    assert f"/usr/lib/{word}/libnvidia-ml.so.1" in PAGE or f"/usr/{word}/libnvidia-ml.so.1" in PAGE
