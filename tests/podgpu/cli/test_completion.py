"""Completion in real shells. The cases come from podgpu's parser: each command, option, choice."""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from podgpu.cli.commands import command_parser
from podgpu.cli.completion import script
from podgpu.cli.dcgm_exporter.option_table import OPTIONS
from tests.podgpu.cli import shells

SHELLS = ("bash", "zsh", "fish")
FILE = "gpu-nodes.yaml"


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    shells.required(name)
    return name


@pytest.fixture
def written(shell: str, tmp_path: Path) -> Path:
    path = tmp_path / "_podgpu"
    path.write_text(script(command_parser(), shell) + "\n", encoding="utf-8")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / FILE).touch()
    return path


def words_of(parser: argparse.ArgumentParser) -> list[str]:
    """Return the long options that the help of a command shows."""
    return sorted(
        name
        for action in parser._actions
        if action.help != argparse.SUPPRESS
        for name in action.option_strings
        if name.startswith("--")
    )


def below(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (found,) = [
        action.choices
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
    ] or [{}]
    return dict(found)


def unique(word: str, others: list[str]) -> str:
    """Return the shortest beginning of a word that no other word has; empty if there is none."""
    # A single dash begins short options too, and zsh takes a dash as the end of any part of a word.
    for length in range(3 if word.startswith("--") else 1, len(word)):
        begun = word[:length]
        if [each for each in others if each.startswith(begun)] == [word] and begun[-1] != "-":
            return begun
    return ""


def cases() -> Iterator[tuple[list[str], str, str]]:
    """Yield words, the beginning of a next word, and the word that it means."""
    commands = below(command_parser())
    yield from ((["podgpu"], unique(name, list(commands)), name) for name in commands)
    yield ["podgpu", "topology"], "b", "best"
    parsers: dict[tuple[str, ...], argparse.ArgumentParser] = {
        (name,): parser for name, parser in commands.items()
    }
    parsers[("topology", "best")] = below(commands["topology"])["best"]
    dcgm = [f"--{option.name}" for option in OPTIONS]
    for path, parser in parsers.items():
        options = [*words_of(parser), *(dcgm if path == ("dcgm-exporter",) else [])]
        for option in options:
            yield ["podgpu", *path], unique(option, options), option
    for path, parser in parsers.items():
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                continue
            for choice in action.choices or ():
                before = action.option_strings[-1:]
                yield ["podgpu", *path, *before], unique(choice, list(action.choices or ())), choice
    for name in ("run", "check", "record"):
        yield ["podgpu", name, "-c"], "gpu-", FILE
    yield ["podgpu", "dcgm-exporter", "-f"], "gpu-", FILE


CASES = [case for case in cases() if case[1]]


def test_there_are_cases_of_every_command() -> None:
    assert {case[0][1] for case in CASES if len(case[0]) > 1} == set(below(command_parser()))
    assert len(CASES) > 150


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_shell_completes_each_command_option_choice_and_file(shell: str, written: Path) -> None:
    folder = written.parent / "here"
    if shell == "fish":
        lines = [" ".join([*words, begun]) for words, begun, _ in CASES]
        assert shells.fish_candidates(written, folder, lines) == [[word] for *_, word in CASES]
        return
    with shells.interactive(shell, written, folder) as it:
        for words, begun, word in CASES:
            typed = " ".join([*words, begun])
            assert it.arguments(typed) == [*words[1:], word], typed


@pytest.mark.slow
def test_a_hidden_option_is_not_completed(shell: str, written: Path) -> None:
    """`--password` exists only for its error message."""
    folder = written.parent / "here"
    line = "podgpu top --password"
    if shell == "fish":
        assert shells.fish_candidates(written, folder, [line]) == [["--password-file"]]
        return
    with shells.interactive(shell, written, folder) as it:
        assert it.arguments(line) == ["top", "--password-file"]


def test_the_script_needs_no_podgpu_and_its_making_loads_no_other_library() -> None:
    program = "import sys; from podgpu.cli.commands import run_command; run_command(sys.argv[1:])"
    program += "; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", program, "completion", "bash"],
        capture_output=True,
        text=True,
        check=True,
    )
    heavy = {"aiohttp", "grpc", "kubernetes_asyncio", "opentelemetry", "orjson", "pynvml"}
    heavy |= {"duckdb", "obstore", "ssl"}
    assert heavy & {name.split(".")[0] for name in done.stderr.split()} == set()
    commands = [line for line in done.stdout.splitlines() if not line.lstrip().startswith("#")]
    assert not [line for line in commands if "$(podgpu" in line or "python" in line]
