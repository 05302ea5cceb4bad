"""Tests of the links that a path goes through, and of positions in a JSON text."""

from pathlib import Path

import pytest

from pipeline.files.symlink_chain import links_of


def below(root: Path, path: str) -> list[str]:
    prefix = f"{root}/"
    pairs = [f"{folder}/{name}" for folder, name in links_of(f"{root}/{path}")]
    return [pair.removeprefix(prefix) for pair in pairs if pair.startswith(prefix)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path.resolve()
    (root / "real" / "deep").mkdir(parents=True)
    (root / "real" / "deep" / "file").touch()
    return root


def test_all_steps_of_a_path_are_returned(root: Path) -> None:
    assert list(links_of("/"))[:1] == []
    assert next(links_of(str(root)))[0] == "/"
    assert below(root, "real/./deep//file") == ["real", "real/deep", "real/deep/file"]


def test_the_steps_end_at_the_first_name_that_does_not_exist(root: Path) -> None:
    assert below(root, "real/no/file") == ["real", "real/no"]
    assert below(root, "real/deep/file/file") == ["real", "real/deep", "real/deep/file"]


@pytest.mark.parametrize("target", ["real", "{root}/real", "real/deep/.."])
def test_the_steps_go_through_symbolic_links(root: Path, target: str) -> None:
    (root / "link").symlink_to(target.format(root=root))
    steps = below(root, "link/deep/file")
    assert steps[0] == "link"
    assert steps[-3:] == (
        ["real/deep", "real/deep", "real/deep/file"]
        if ".." in target
        else ["real", "real/deep", "real/deep/file"]
    )


def test_two_dots_after_a_link_lead_to_the_parent_of_its_target(root: Path) -> None:
    (root / "link").symlink_to("real/deep")
    assert below(root, "link/../deep/file")[-2:] == ["real/deep", "real/deep/file"]


def test_a_loop_of_links_ends(root: Path) -> None:
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    assert len(below(root, "a/file")) == 41
