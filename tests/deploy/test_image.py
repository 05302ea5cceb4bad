"""What the image is made of: the Dockerfile, and the files that pin what goes into it."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from tests.deploy.places import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
RUNS = ROOT / "requirements.txt"
BUILDS = ROOT / "image" / "build-requirements.txt"

_PIN = re.compile(r"^([a-z0-9-]+)==(\S+)((?: *\\\n +--hash=sha256:[0-9a-f]{64})*)$", re.MULTILINE)


def instructions() -> list[list[str]]:
    """Return the Dockerfile's instructions, each as words."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE).replace("\\\n", " ")
    return [shlex.split(line) for line in text.splitlines() if line.strip()]


def pins(file: Path) -> dict[str, str]:
    return {name: version for name, version, _ in _PIN.findall(file.read_text(encoding="utf-8"))}


def required(texts: list[str]) -> set[str]:
    """Return the names in requirements such as `PyYAML>=6.0`, as the lists have them."""
    return {re.split(r"[<>=\[]", text)[0].lower().replace("_", "-") for text in texts}


@pytest.mark.parametrize("file", [RUNS, BUILDS], ids=lambda file: file.name)
def test_each_package_is_pinned_with_hashes(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    found = _PIN.findall(text)
    assert found
    assert [name for name, _, hashes in found if not hashes] == []
    without = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
    assert len(without) == len(found), "every line is such a pin"


@pytest.mark.parametrize("file", [RUNS, BUILDS], ids=lambda file: file.name)
def test_the_image_has_the_versions_that_are_tested(file: Path) -> None:
    """`make lock` writes all of them together."""
    assert pins(file).items() <= pins(ROOT / "constraints.txt").items()


def test_the_lists_have_what_podgpu_asks_for() -> None:
    assert required(PROJECT["project"]["dependencies"]) <= pins(RUNS).keys()
    assert required(PROJECT["build-system"]["requires"]) <= pins(BUILDS).keys()


def test_nothing_is_installed_without_its_hash() -> None:
    installs = [
        command
        for first, *words in instructions()
        if first == "RUN"
        for command in " ".join(words).split("&&")
        if "pip" in command and " install " in command
    ]
    assert len(installs) == 3
    for command in installs:
        assert "--require-hashes" in command or "--no-index --no-deps /dist/*.whl" in command


def test_the_build_sees_what_it_copies_and_nothing_else() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in ignored
    assert "**/__pycache__" in ignored
    copied = {
        source.split("/")[0]
        for first, *words in instructions()
        if first == "COPY" and not words[0].startswith("--from")
        for source in words[:-1]
    }
    assert copied == {line.removeprefix("!") for line in ignored if line.startswith("!")}


def test_any_base_can_be_given_for_both_stages() -> None:
    assert [words for words in instructions() if words[0] == "FROM"] == [
        ["FROM", "${BASE}", "AS", "build"],
        ["FROM", "${BASE}"],
    ]
    assert next(words for words in instructions() if words[0] == "ARG")[1].startswith("BASE=")


def test_the_label_has_the_version() -> None:
    assert f"ARG VERSION={PROJECT['project']['version']}\n" in DOCKERFILE


def test_the_labels_say_what_it_is_and_what_it_is_made_of() -> None:
    """All of the image specification's that can be known; podgpu has no public address."""
    (words,) = [words[1:] for words in instructions() if words[0] == "LABEL"]
    labels = dict(word.split("=", 1) for word in words)
    own = {"title", "description", "licenses", "version", "revision", "created", "base.name"}
    assert labels.keys() == {f"org.opencontainers.image.{name}" for name in own}
    # Of an argument nothing is known in a stage that doesn't name it.
    read = instructions()
    last = max(at for at, words in enumerate(read) if words[0] == "FROM")
    named = {words[1].split("=")[0] for words in read[last:] if words[0] == "ARG"}
    assert set(re.findall(r"\$\{(\w+)\}", " ".join(words))) == named
