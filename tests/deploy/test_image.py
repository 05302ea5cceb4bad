"""The container image: the Dockerfile, and the files that pin the packages in it."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from tests.deploy.places import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
RUNTIME_PINS = ROOT / "requirements.txt"
BUILD_PINS = ROOT / "image" / "build-requirements.txt"

_PIN = re.compile(r"^([a-z0-9-]+)==(\S+)((?: *\\\n +--hash=sha256:[0-9a-f]{64})*)$", re.MULTILINE)


def instructions() -> list[list[str]]:
    """Return the Dockerfile's instructions, each as words."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE).replace("\\\n", " ")
    return [shlex.split(line) for line in text.splitlines() if line.strip()]


def pins(file: Path) -> dict[str, str]:
    return {name: version for name, version, _ in _PIN.findall(file.read_text(encoding="utf-8"))}


def required(texts: list[str]) -> set[str]:
    """Return the normalized package names in requirements such as `PyYAML>=6.0`."""
    return {re.split(r"[<>=\[]", text)[0].lower().replace("_", "-") for text in texts}


@pytest.mark.parametrize("file", [RUNTIME_PINS, BUILD_PINS], ids=lambda file: file.name)
def test_each_package_is_pinned_with_hashes(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    found = _PIN.findall(text)
    assert found
    assert [name for name, _, hashes in found if not hashes] == []
    without = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
    assert len(without) == len(found), "every line is a pin with a version"


@pytest.mark.parametrize("file", [RUNTIME_PINS, BUILD_PINS], ids=lambda file: file.name)
def test_the_image_has_the_versions_that_are_tested(file: Path) -> None:
    """`make lock` writes all these files."""
    assert pins(file).items() <= pins(ROOT / "constraints.txt").items()


def test_the_pins_include_all_requirements_of_podgpu() -> None:
    project = PROJECT["project"]
    needed = required(project["dependencies"])
    needed |= required(project["optional-dependencies"]["archive"])
    assert needed <= pins(RUNTIME_PINS).keys()
    assert required(PROJECT["build-system"]["requires"]) <= pins(BUILD_PINS).keys()


def test_no_package_is_installed_without_a_hash() -> None:
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


def test_the_build_context_has_only_files_that_the_build_copies() -> None:
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


def test_the_base_image_of_both_stages_is_an_argument() -> None:
    assert [words for words in instructions() if words[0] == "FROM"] == [
        ["FROM", "${BASE}", "AS", "build"],
        ["FROM", "${BASE}"],
    ]
    assert next(words for words in instructions() if words[0] == "ARG")[1].startswith("BASE=")


def test_the_version_argument_is_the_project_version() -> None:
    assert f"ARG VERSION={PROJECT['project']['version']}\n" in DOCKERFILE


def test_the_image_has_the_standard_labels() -> None:
    """All labels of the OCI image specification, except addresses; podgpu has no public one."""
    (words,) = [words[1:] for words in instructions() if words[0] == "LABEL"]
    labels = dict(word.split("=", 1) for word in words)
    own = {"title", "description", "licenses", "version", "revision", "created", "base.name"}
    assert labels.keys() == {f"org.opencontainers.image.{name}" for name in own}
    # A stage does not see an argument that it does not declare.
    read = instructions()
    last = max(at for at, words in enumerate(read) if words[0] == "FROM")
    named = {words[1].split("=")[0] for words in read[last:] if words[0] == "ARG"}
    assert set(re.findall(r"\$\{(\w+)\}", " ".join(words))) == named
