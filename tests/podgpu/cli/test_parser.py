"""Errors of an invalid command line never repeat words that may be a password."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podgpu.cli.commands import run_command
from tests.podgpu.cli.topology_command import CREDENTIAL, run
from tests.support.examples import examples

SECRETS = ("hunter2", CREDENTIAL)
"""argparse handles a word with a blank differently."""

NOT_SHOWN = "an argument belongs to no option; it is not shown, because it may be a password"

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
        ("--passwd x", 'there is no option --passwd; did you mean "--password-file"? See'),
        ("--user me --passwd x best", 'no option --passwd; did you mean "--password-file"? See'),
        ("--user=me --insecure -cx --passwd x", 'did you mean "--password-file"? See'),
        (
            "--user=me --passwd x",
            'there is no option --passwd; did you mean "--password-file"? See',
        ),
        ("--pw=x", "there is no option --pw; see"),
        ("--pw --x --y", "there is no option --pw; see"),
        ("-px", "there is no option -p; see"),
        ("-url x", 'there is no option -url; did you mean "--url"? See'),
        ("-n 4 best", "there is no option -n; write it after podgpu topology best; see"),
        ("-\x1b[2J", f"{NOT_SHOWN}; see"),
        ("best -n 1 x", f"{NOT_SHOWN}; see"),
        ("bets --url x", 'there is no such command; did you mean "best"? See'),
        ("bets -n 4", 'there is no such command; did you mean "best"? See'),
        ("worst", "there is no such command; the commands are best; see"),
        ("--json=x", "argument --json: takes no value; see"),
        ("--json --dot", "argument --dot: not allowed with argument --json; see"),
        ("--user", "argument --user: expected one argument; see"),
        ("best", "the following arguments are required: -n; see"),
        ("best --cuont 4", "there is no option --cuont; see"),
    ],
)
def test_an_error_names_the_option_and_the_help(
    capsys: pytest.CaptureFixture[str], words: str, why: str
) -> None:
    status, _, err = run(capsys, *words.split())
    assert status == 2
    command = "podgpu topology best" if words.startswith("best") else "podgpu topology"
    assert err.startswith(f"{command}: error: ")
    assert err.endswith(f"{why} {command} --help\n")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("words", ["--js", "--passw x", "--conf x", "best -n 1 --cand 0"])
def test_options_cannot_be_abbreviated(capsys: pytest.CaptureFixture[str], words: str) -> None:
    status, _, err = run(capsys, *words.split())
    assert status == 2
    assert "there is no option --" in err


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
