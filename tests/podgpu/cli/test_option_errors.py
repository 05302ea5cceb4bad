"""What each command says about a mistyped command, option or choice, and podgpu without a command.

The tables come from the parser itself, so that a new command or option is tested too.
"""

import argparse
from collections.abc import Iterator

import pytest

from podgpu.cli.commands import command_parser, run_command
from podgpu.cli.option_parser import Parser

Capsys = pytest.CaptureFixture[str]
Words = tuple[str, ...]

OWN_PARSER = "dcgm-exporter"
"""Its options are those of another program and have their own parser."""


def parsers(parser: argparse.ArgumentParser | None = None) -> Iterator[Parser]:
    """Yield the parser of podgpu and of each command and subcommand."""
    parser = command_parser() if parser is None else parser
    assert isinstance(parser, Parser)
    if OWN_PARSER not in parser.prog:
        yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from parsers(each)


def closed_choices() -> Iterator[tuple[str, str, str]]:
    """Yield each valid choice: the command, the option (empty for a command), and the choice."""
    for parser in parsers():
        for action in parser._actions:
            for choice in action.choices or ():
                yield parser.prog, next(iter(action.option_strings), ""), choice


def error(capsys: Capsys, words: str) -> str:
    """Return the single line of the error of an invalid command line."""
    with pytest.raises(SystemExit) as ended:
        run_command(words.split()[1:])
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err.removesuffix("\n")


def test_the_tables_are_complete() -> None:
    assert {"podgpu", "podgpu usage", "podgpu topology best"} <= {each.prog for each in parsers()}
    found = {(prog, option) for prog, option, _ in closed_choices()}
    assert {("podgpu", ""), ("podgpu usage", "--format"), ("podgpu topology", "")} <= found


@pytest.mark.parametrize(("prog", "option", "choice"), list(closed_choices()))
def test_the_meant_choice_is_suggested(capsys: Capsys, prog: str, option: str, choice: str) -> None:
    """A letter is missing."""
    typed = choice[:-2] + choice[-1]
    message = error(capsys, f"{prog} {option} {typed}")
    assert message.endswith(f'; did you mean "{choice}"? See {prog} --help')


@pytest.mark.parametrize(("prog", "option"), sorted({each[:2] for each in closed_choices()}))
def test_a_choice_like_no_other_is_answered_with_all(
    capsys: Capsys, prog: str, option: str
) -> None:
    message = error(capsys, f"{prog} {option} zzz")
    assert "zzz" not in message
    names = [choice for *where, choice in closed_choices() if tuple(where) == (prog, option)]
    assert f"{', '.join(names)}; see {prog} --help" in message


@pytest.mark.parametrize("prog", [each.prog for each in parsers()])
def test_an_unknown_option_is_repeated(capsys: Capsys, prog: str) -> None:
    for typed in ("--zzz", "--zzz=x", "--zzz x"):
        assert error(capsys, f"{prog} {typed}") == (
            f"{prog}: error: there is no option --zzz; see {prog} --help"
        )


@pytest.mark.parametrize(
    ("prog", "name"),
    [
        (each.prog, name)
        for each in parsers()
        for name in each._names()
        if name.startswith("--") and name != "--json"
    ],
)
def test_the_most_similar_option_is_suggested(capsys: Capsys, prog: str, name: str) -> None:
    typed = name[:-2] + name[-1]
    expected = f'there is no option {typed}; did you mean "{name}"? See {prog} --help'
    assert error(capsys, f"{prog} {typed}") == f"{prog}: error: {expected}"
    assert error(capsys, f"{prog} {name[1:]}").endswith(f'did you mean "{name}"? See {prog} --help')


@pytest.mark.parametrize("command", ["", "top", "topology"])
def test_an_option_before_its_command_is_placed(capsys: Capsys, command: str) -> None:
    message = error(capsys, f"podgpu --url http://localhost:9400 {command}")
    assert f"there is no option --url; write it after podgpu {command or 'topology'}" in message


@pytest.mark.parametrize("typed", ["help", "version"])
def test_a_command_that_is_an_option_is_suggested(capsys: Capsys, typed: str) -> None:
    assert f'did you mean "--{typed}"?' in error(capsys, f"podgpu {typed}")


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_file_without_its_option_is_answered_with_the_option(
    capsys: Capsys, command: str
) -> None:
    message = error(capsys, f"podgpu {command} podgpu.yaml")
    assert "options with a value: -c FILE, --allow-library FILE; see" in message


def test_without_a_command_the_help_is_printed_and_the_status_is_2(capsys: Capsys) -> None:
    assert run_command([]) == 2
    bare = capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        run_command(["--help"])
    assert ended.value.code == 0
    assert capsys.readouterr() == bare
    assert bare.out.startswith("usage: podgpu")
    assert bare.err == ""


def test_help_is_printed_although_another_option_is_unknown(capsys: Capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        run_command(["usage", "--help", "--zzz"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: podgpu usage")


@pytest.mark.parametrize("typed", ["--price", "--cost"])
def test_the_start_of_several_options_names_all_of_them(capsys: Capsys, typed: str) -> None:
    assert error(capsys, f"podgpu usage {typed} 2.50").endswith(
        f'no option {typed}; did you mean "--price-gpu-hour" or "--price-kwh"? '
        "See podgpu usage --help"
    )


@pytest.mark.parametrize("address", ["http://localhost:9999", "localhost:9999", "https://a.b/c"])
def test_an_address_without_its_option_is_recognised(capsys: Capsys, address: str) -> None:
    assert "give it as --url" in error(capsys, f"podgpu top --once {address}")
