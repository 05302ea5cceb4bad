"""Options and variables for access to a daemon, and their errors before any request."""

import argparse
import base64
import os
from pathlib import Path

import pytest

from pipeline.base.errors import PermanentError
from podgpu.cli.client_options import Access, access_of, add_access
from podgpu.cli.daemon_client import authorization, context
from tests.pipeline.net.test_pem import encrypted
from tests.podgpu.cli.topology_command import run
from tests.support.web import authority, certificate, pem

CREDENTIAL = "correct horse"
CA = authority("server").cert_pem.bytes()
CHAIN, KEY = pem(certificate("clients", "podgpu"))
OTHER_KEY = pem(certificate("clients", "another"))[1]
FILES = {
    "ca": CA,
    "cert": CHAIN,
    "key": KEY,
    "other": OTHER_KEY,
    "locked": encrypted(KEY),
    "password": f"{CREDENTIAL}\n".encode(),
    "empty": b"",
    "lines": f"{CREDENTIAL}\n{CREDENTIAL}\n".encode(),
    "large": b"x" * ((1 << 20) + 1),
}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working folder, which contains `FILES`."""
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def access_from(*words: str, **environ: str) -> Access:
    parser = argparse.ArgumentParser()
    add_access(parser)
    return access_of(parser.parse_args(words), environ)


def basic(user: bytes, password: bytes) -> str:
    return "Basic " + base64.b64encode(user + b":" + password).decode()


USER = ("--user", "me")


@pytest.mark.parametrize(
    ("words", "environ", "password"),
    [
        ((*USER, "--password-file", "password"), {}, CREDENTIAL),
        (USER, {"PODGPU_PASSWORD_FILE": "password"}, CREDENTIAL),
        (USER, {"PODGPU_PASSWORD": "other"}, "other"),
        ((), {"PODGPU_USER": "me", "PODGPU_PASSWORD": "other\n"}, "other"),
        ((), {"PODGPU_USER": "me", "PODGPU_PASSWORD": " a:b "}, " a:b "),
        (USER, {"PODGPU_USER": "you", "PODGPU_PASSWORD": "other"}, "other"),
        ((*USER, "--password-file", "password"), {"PODGPU_PASSWORD": "other"}, CREDENTIAL),
        ((*USER, "--password-file", "password"), {"PODGPU_PASSWORD_FILE": "none"}, CREDENTIAL),
        (USER, {"PODGPU_PASSWORD_FILE": "", "PODGPU_PASSWORD": "é"}, "é"),
    ],
)
def test_user_and_password_are_sent_as_basic_authentication(
    files: Path, words: tuple[str, ...], environ: dict[str, str], password: str
) -> None:
    header = authorization(access_from(*words, **environ))
    assert header == basic(b"me", password.encode())


def test_bytes_of_a_password_that_are_not_utf8_are_kept(files: Path) -> None:
    (files / "odd").write_bytes(b"a\xff\n")
    by_file = access_from(*USER, "--password-file", "odd")
    by_variable = access_from(*USER, PODGPU_PASSWORD=os.fsdecode(b"a\xff"))
    assert authorization(by_file) == authorization(by_variable) == basic(b"me", b"a\xff")


def test_without_options_nothing_is_sent() -> None:
    assert authorization(access_from()) == ""
    assert access_from(PODGPU_USER="", PODGPU_CA_FILE="") == Access()


def test_an_option_takes_precedence_over_its_variable(files: Path) -> None:
    tls = context(access_from("--ca-file", "ca", PODGPU_CA_FILE="none"))
    assert len(tls.get_ca_certs()) == 1
    assert not tls.hostname_checks_common_name
    tls = context(access_from("--insecure", PODGPU_CA_FILE="none"))
    assert not tls.check_hostname


@pytest.mark.parametrize(
    ("words", "environ", "why"),
    [
        (("--cert-file", "cert"), {}, "--cert-file needs --key-file: give both the certificate"),
        ((), {"PODGPU_KEY_FILE": "key"}, "PODGPU_KEY_FILE needs --cert-file"),
        (
            ("--ca-file", "ca", "--insecure"),
            {},
            "--ca-file and --insecure exclude each other: give only one",
        ),
        (USER, {}, "--user needs a password: give --password-file or the variable PODGPU_PASSWORD"),
        ((), {"PODGPU_USER": "me"}, "PODGPU_USER needs a password"),
        (("--password-file", "password"), {}, "--password-file needs --user"),
        ((), {"PODGPU_PASSWORD": CREDENTIAL}, "PODGPU_PASSWORD needs --user"),
        (
            USER,
            {"PODGPU_PASSWORD": CREDENTIAL, "PODGPU_PASSWORD_FILE": "password"},
            "PODGPU_PASSWORD and PODGPU_PASSWORD_FILE are both set: unset one",
        ),
        (
            ("--user", f"me:{CREDENTIAL}", "--password-file", "password"),
            {},
            "--user: a user name must not be empty, and must not contain a colon",
        ),
        (
            ("--user", "", "--password-file", "password"),
            {},
            "--user: a user name must not be empty",
        ),
        ((), {"PODGPU_USER": "a\nb", "PODGPU_PASSWORD": CREDENTIAL}, "PODGPU_USER: a user name"),
    ],
)
def test_options_that_exclude_or_need_each_other(
    words: tuple[str, ...], environ: dict[str, str], why: str
) -> None:
    with pytest.raises(PermanentError) as caught:
        access_from(*words, **environ)
    assert str(caught.value).startswith(why)
    assert CREDENTIAL not in str(caught.value)


PAIR = ("--cert-file", "cert", "--key-file", "key")


@pytest.mark.parametrize(
    ("words", "environ", "why"),
    [
        (("--ca-file", "none"), {}, "--ca-file none: no such file; check the path"),
        ((), {"PODGPU_CA_FILE": "none"}, "PODGPU_CA_FILE none: no such file"),
        (("--ca-file", "."), {}, "--ca-file .: is a directory; give the path of a file"),
        (("--ca-file", "large"), {}, "--ca-file large: is larger than 1048576 bytes"),
        (
            ("--ca-file", "password"),
            {},
            "--ca-file password: has no usable certificate in PEM format; give the cert",
        ),
        (("--ca-file", "empty"), {}, "--ca-file empty: has no usable certificate in PEM format"),
        (("--ca-file", "key"), {}, "--ca-file key: has no usable certificate in PEM format"),
        ((*PAIR, "--cert-file", "none"), {}, "--cert-file none: no such file"),
        (
            (*PAIR, "--cert-file", "key"),
            {},
            "--cert-file key: has no usable certificate in PEM format",
        ),
        ((*PAIR, "--key-file", "none"), {}, "--key-file none: no such file"),
        (
            (*PAIR, "--key-file", "password"),
            {},
            "--key-file password: has no usable key in PEM format",
        ),
        (
            (*PAIR, "--key-file", "other"),
            {},
            "--key-file other: is not the key of the certificate; give the private key",
        ),
        ((*PAIR, "--key-file", "locked"), {}, "--key-file locked: is encrypted, and podgpu has no"),
    ],
)
def test_unusable_files_for_tls(
    files: Path, words: tuple[str, ...], environ: dict[str, str], why: str
) -> None:
    with pytest.raises(PermanentError) as caught:
        context(access_from(*words, **environ))
    assert str(caught.value).startswith(why)
    assert CREDENTIAL not in str(caught.value)


@pytest.mark.parametrize(
    ("words", "environ", "why"),
    [
        (("--password-file", "none"), {}, "--password-file none: no such file; check the path"),
        (("--password-file", "empty"), {}, "--password-file empty: must contain only"),
        (("--password-file", "lines"), {}, "--password-file lines: must contain only"),
        ((), {"PODGPU_PASSWORD_FILE": "none"}, "PODGPU_PASSWORD_FILE none: no such file"),
        ((), {"PODGPU_PASSWORD": "\n"}, "PODGPU_PASSWORD: must contain only"),
        ((), {"PODGPU_PASSWORD": f"{CREDENTIAL}\nb"}, "PODGPU_PASSWORD: must contain only"),
    ],
)
def test_unusable_passwords(
    files: Path, words: tuple[str, ...], environ: dict[str, str], why: str
) -> None:
    with pytest.raises(PermanentError) as caught:
        authorization(access_from(*USER, *words, **environ))
    assert str(caught.value).startswith(why)
    assert CREDENTIAL not in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_password_file_without_read_permission(files: Path) -> None:
    (files / "password").chmod(0)
    with pytest.raises(PermanentError, match="permission denied to uid"):
        authorization(access_from(*USER, "--password-file", "password"))


def test_a_password_can_be_read_from_a_pipe(files: Path) -> None:
    read, write = os.pipe()
    try:
        os.write(write, FILES["password"])
        os.close(write)
        access = access_from(*USER, "--password-file", f"/dev/fd/{read}")
        assert authorization(access) == basic(b"me", CREDENTIAL.encode())
    finally:
        os.close(read)


def test_the_text_of_an_access_does_not_contain_the_password() -> None:
    access = access_from(*USER, PODGPU_PASSWORD=CREDENTIAL)
    assert CREDENTIAL not in f"{access}{access!r}"


@pytest.mark.parametrize("words", [("--password", CREDENTIAL), (f"--password={CREDENTIAL}",)])
@pytest.mark.parametrize("command", [(), ("best", "-n", "1")])
def test_a_password_on_the_command_line_is_refused(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], command: tuple[str, ...]
) -> None:
    status, out, err = run(capsys, *command, *words)
    assert (status, out) == (2, "")
    assert "other users of this machine could read it: use --password-file or the variable" in err
    assert CREDENTIAL not in err
