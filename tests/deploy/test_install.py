"""The page install.md: its commands, and its list of what remains after uninstalling."""

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
def test_no_documented_command_runs_right_after_a_background_port_forward(page: Path) -> None:
    """`port-forward` in the background may listen only after the next command has run."""
    text = page.read_text(encoding="utf-8")
    forwards = [line for line in text.splitlines() if "port-forward" in line]
    assert [line for line in forwards if re.search(r"&\s*\S", line)] == []


def leaves_data(kind: str) -> bool:
    """Return whether a sink of that kind by default leaves its data at the API server."""
    fields = {
        field.name: field.default for field in msgspec.structs.fields(KINDS.options("sink", kind))
    }
    return fields.get("remove") == "never"


def test_the_page_documents_what_sinks_leave_in_the_cluster() -> None:
    leaving = [kind for kind in KINDS.names("sink") if leaves_data(kind)]
    assert leaving
    for kind in leaving:
        assert f"[{kind}](sinks/{kind}.md)" in UNINSTALL
    assert "`remove: now`" in UNINSTALL


def test_the_page_documents_folders_that_the_kubelet_creates() -> None:
    made = (CHART / "templates" / "daemonset.yaml").read_text(encoding="utf-8")
    assert ("type: DirectoryOrCreate" in made) == ("`DirectoryOrCreate`" in UNINSTALL)


@pytest.mark.parametrize("word", ["x86_64-linux-gnu", "aarch64-linux-gnu", "lib64"])
def test_the_page_has_the_path_of_the_driver_library_for_each_system(word: str) -> None:
    assert f"/usr/lib/{word}/libnvidia-ml.so.1" in PAGE or f"/usr/{word}/libnvidia-ml.so.1" in PAGE
