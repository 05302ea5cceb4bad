"""Errors of an invalid command line never repeat words that may be a password."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podgpu.cli.commands import run_command
from tests.podgpu.cli.topology_command import CREDENTIAL, run
from tests.support.examples import examples

SECRETS = ("hunter2", CREDENTIAL)
"""argparse handles a word with a blank differently."""

FORMS = (
    "--pass={}",
    "--passwor={}",
    "--pass {}",
    "--passw {}",
    "--passwd {}",
    "--passwd={}",
    "--pw={}",
    "--pw:{}",
    "--pw --{}",
    "--pw -{}",
    "--pw= {}",
    "--user me --pw {}",
    "--user=me --pw {}",
    "--user me {}",
    "--json --pw {}",
    "--insecure={}",
    "--json={}",
    "-p {}",
    "-p{}",
    "-p={}",
    "-P{}",
    "{}",
    "-- {}",
    "--password {}",
    "--password={}",
    "--password -{}",
)
ADDRESSES = (
    "http://localhost:1/?token={}",
    "http://localhost:1?{}",
    "https://h/#{}",
    "http://h/?a#{}",
    "http://me:{}%40h:9400",
    "http://me:{}",
    "http://{}:port",
    "http://:{}@h",
    "me:{}@h",
    "me:{}",
    "{}",
    "http://[{}",
)


def words_of(form: str, secret: str) -> list[str]:
    return [word.format(secret) for word in form.split(" ")]


def error_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return the error of a command line with a secret; check that it does not show the secret."""
    status, out, err = run(capsys, *words)
    assert (status, out) == (2, "")
    assert not any(secret in err for secret in SECRETS), err
    return err.splitlines()[-1]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("form", FORMS)
def test_an_error_about_an_option_does_not_repeat_its_value(
    capsys: pytest.CaptureFixture[str], form: str, secret: str
) -> None:
    words = words_of(form, secret)
    error_of(capsys, *words)
    error_of(capsys, *words, "best", "-n", "1")
    error_of(capsys, "best", "-n", "1", *words)


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("address", ADDRESSES)
def test_an_error_about_an_address_does_not_repeat_it(
    capsys: pytest.CaptureFixture[str], address: str, secret: str
) -> None:
    url = address.format(secret)
    assert "such as http://localhost:9400" in (
        message := error_of(capsys, "--url", url)
    ) or message.startswith("podgpu: do not put a user name or password in")
    error_of(capsys, "best", "-n", "1", f"--url={url}")


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=examples(50),
    deadline=None,
)
@given(
    st.lists(st.sampled_from(["--json", "--user me", "--insecure", "-c x", "best", "-n 1"])),
    st.sampled_from(FORMS),
    st.lists(st.sampled_from(["--json", "--url x", "--nope", "word", "best", "-n 1"])),
)
def test_a_secret_is_not_repeated_at_any_position(
    capsys: pytest.CaptureFixture[str], before: list[str], form: str, after: list[str]
) -> None:
    rest = [word for words in after for word in words.split()]
    words = [word for words in before for word in words.split()]
    error_of(capsys, *words, *words_of(form, "hunter2"), *rest)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--passwd x", "unrecognized arguments: --passwd"),
        ("--user me --passwd x best", "unrecognized arguments: --passwd"),
        ("--user=me --insecure -cx --passwd x", "unrecognized arguments: --passwd"),
        ("--user=me --passwd x", "unrecognized arguments: --passwd"),
        ("--pw=x", "unrecognized arguments: --pw"),
        ("--pw --x --y", "unrecognized arguments: --pw"),
        ("-px", "unrecognized arguments: -p"),
        ("-\x1b[2J", "unrecognized arguments: an argument that belongs to no option"),
        ("best -n 1 x", "unrecognized arguments: an argument that belongs to no option"),
        ("bets --url x", "argument [best]: invalid choice (choose from 'best')"),
        ("bets -n 4", "argument [best]: invalid choice (choose from 'best')"),
        ("--json=x", "argument --json: takes no value"),
        ("--json --dot", "argument --dot: not allowed with argument --json"),
        ("--user", "argument --user: expected one argument"),
        ("best", "the following arguments are required: -n"),
    ],
)
def test_an_error_still_names_the_option(
    capsys: pytest.CaptureFixture[str], words: str, why: str
) -> None:
    status, _, err = run(capsys, *words.split())
    assert status == 2
    assert err.splitlines()[-1].endswith(f"error: {why}")


@pytest.mark.parametrize("words", ["--js", "--passw x", "--conf x", "best -n 1 --cand 0"])
def test_options_cannot_be_abbreviated(capsys: pytest.CaptureFixture[str], words: str) -> None:
    status, _, err = run(capsys, *words.split())
    assert status == 2
    assert "unrecognized arguments: --" in err


@pytest.mark.parametrize(
    "words",
    [
        "hunter2",
        "--pw hunter2",
        "run --pw=hunter2",
        "check hunter2",
        "record -o x -fhunter2",
        "fields --format hunter2",
        "extender --pw hunter2",
        "kinds --pw hunter2",
    ],
)
def test_no_command_repeats_a_secret(capsys: pytest.CaptureFixture[str], words: str) -> None:
    with pytest.raises(SystemExit) as ended:
        run_command(words.split())
    assert ended.value.code == 2
    assert "hunter2" not in capsys.readouterr().err
