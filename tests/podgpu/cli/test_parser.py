"""What is said of a command line that means nothing: never the words that may be a password."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podgpu.cli.commands import run_command
from tests.podgpu.cli.asked import KEPT, Said, run

SECRETS = ("hunter2", KEPT)
"""Words without a blank and with one are different things to the library."""

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


def written(form: str, secret: str) -> list[str]:
    return [word.format(secret) for word in form.split(" ")]


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The message for a command line that has a secret in it somewhere."""
    said: Said = run(capsys, *words)
    assert said[:2] == (2, "")
    assert not any(secret in said[2] for secret in SECRETS), said[2]
    return said[2].splitlines()[-1]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("form", FORMS)
def test_no_word_of_a_wrong_option_is_repeated(
    capsys: pytest.CaptureFixture[str], form: str, secret: str
) -> None:
    words = written(form, secret)
    refused(capsys, *words)
    refused(capsys, *words, "best", "-n", "1")
    refused(capsys, "best", "-n", "1", *words)


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("address", ADDRESSES)
def test_no_part_of_a_wrong_address_is_repeated(
    capsys: pytest.CaptureFixture[str], address: str, secret: str
) -> None:
    url = address.format(secret)
    assert "such as http://localhost:9400" in (
        said := refused(capsys, "--url", url)
    ) or said.startswith("podgpu: do not put a user name or password in")
    refused(capsys, "best", "-n", "1", f"--url={url}")


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100, deadline=None
)
@given(
    st.lists(st.sampled_from(["--json", "--user me", "--insecure", "-c x", "best", "-n 1"])),
    st.sampled_from(FORMS),
    st.lists(st.sampled_from(["--json", "--url x", "--nope", "word", "best", "-n 1"])),
)
def test_wherever_it_stands(
    capsys: pytest.CaptureFixture[str], before: list[str], form: str, after: list[str]
) -> None:
    rest = [word for words in after for word in words.split()]
    words = [word for words in before for word in words.split()]
    refused(capsys, *words, *written(form, "hunter2"), *rest)


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
def test_what_is_wrong_is_reported_all_the_same(
    capsys: pytest.CaptureFixture[str], words: str, why: str
) -> None:
    status, _, err = run(capsys, *words.split())
    assert status == 2
    assert err.splitlines()[-1].endswith(f"error: {why}")


@pytest.mark.parametrize("words", ["--js", "--passw x", "--conf x", "best -n 1 --cand 0"])
def test_no_option_is_cut_short(capsys: pytest.CaptureFixture[str], words: str) -> None:
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
def test_of_every_command(capsys: pytest.CaptureFixture[str], words: str) -> None:
    with pytest.raises(SystemExit) as ended:
        run_command(words.split())
    assert ended.value.code == 2
    assert "hunter2" not in capsys.readouterr().err
