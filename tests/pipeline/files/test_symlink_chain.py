from pathlib import Path

import pytest

from pipeline.files.symlink_chain import links_of
from sources.podlist.json_position import line_and_column, value_offset


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


def test_every_step_of_a_path(root: Path) -> None:
    assert list(links_of("/"))[:1] == []
    assert next(links_of(str(root)))[0] == "/"
    assert below(root, "real/./deep//file") == ["real", "real/deep", "real/deep/file"]


def test_ends_where_nothing_is(root: Path) -> None:
    assert below(root, "real/no/file") == ["real", "real/no"]
    assert below(root, "real/deep/file/file") == ["real", "real/deep", "real/deep/file"]


@pytest.mark.parametrize("target", ["real", "{root}/real", "real/deep/.."])
def test_goes_through_links(root: Path, target: str) -> None:
    (root / "link").symlink_to(target.format(root=root))
    steps = below(root, "link/deep/file")
    assert steps[0] == "link"
    assert steps[-3:] == (
        ["real/deep", "real/deep", "real/deep/file"]
        if ".." in target
        else ["real", "real/deep", "real/deep/file"]
    )


def test_a_parent_is_the_real_folders(root: Path) -> None:
    (root / "link").symlink_to("real/deep")
    assert below(root, "link/../deep/file")[-2:] == ["real/deep", "real/deep/file"]


def test_a_circle_of_links_ends(root: Path) -> None:
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    assert len(below(root, "a/file")) == 41


@pytest.mark.parametrize(
    ("offset", "place"),
    [(0, (1, 1)), (3, (1, 3)), (5, (2, 1)), (7, (3, 2)), (99, (3, 3))],
)
def test_columns_count_characters(offset: int, place: tuple[int, int]) -> None:
    assert line_and_column("aä\r\n\nxy".encode(), offset) == place


@pytest.mark.parametrize(
    ("text", "item", "rest"),
    [
        ('{"k": 1}', None, "1}"),
        ('{"k":\r\n [1]}', None, "[1]}"),
        ('{"a": {"k": 1}, "k" : 2}', None, "2}"),
        ('{"k": 1, "k": 2}', None, "2}"),
        ('{"a": "k", "k": 2}', None, "2}"),
        ('{"a": ":{\\"k\\": 1,", "k": 2}', None, "2}"),
        ('{"\\u006b": 2}', None, "2}"),
        ('{"k": [ 1, [2, 3], {"x": [4, 5]}, 6]}', 0, "1, ["),
        ('{"k": [ 1, [2, 3], {"x": [4, 5]}, 6]}', 1, "[2, 3"),
        ('{"k": [ 1, [2, 3], {"x": [4, 5]}, 6]}', 3, "6]}"),
        ('{"k": [1, 2], "k": [3, 4], "l": [5, 6]}', 1, "4],"),
        ('{"a": 1}', None, "{"),
    ],
)
def test_finds_a_value(text: str, item: int | None, rest: str) -> None:
    assert text[value_offset(text.encode(), "k", item) :].startswith(rest)
