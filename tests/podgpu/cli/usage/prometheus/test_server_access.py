"""The options for a server: what is sent, and what is refused."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import pytest

from pipeline.base.errors import PermanentError
from podgpu.cli.usage.prometheus.server_access import server_of
from podgpu.cli.usage.prometheus.server_options import Server, add_prometheus

LOCAL = "http://127.0.0.1:9090"
PASSWORD = {"PODGPU_PASSWORD": "secret"}
FAR = "http://prometheus.monitoring:9090"


def server(words: Sequence[str], **environ: str) -> Server:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_prometheus(parser)
    return server_of(parser.parse_args(["--prometheus", *words]), environ)


@pytest.mark.parametrize(
    ("given", "used"),
    [
        (FAR, FAR),
        (f"{FAR}/", FAR),
        (f"{FAR}/api/v1", FAR),
        (f"{FAR}/graph", FAR),
        (f"{FAR}/prometheus", f"{FAR}/prometheus"),
        ("https://vm.example/select/0/prometheus/", "https://vm.example/select/0/prometheus"),
    ],
)
def test_the_address_ends_before_the_api(given: str, used: str) -> None:
    assert server([given]).url == used


@pytest.mark.parametrize(
    "given",
    ["prometheus:9090", "ftp://x", "http://", "http://x:99999", f"{FAR}?token=secret", f"{FAR}#a"],
)
def test_another_address_is_refused_without_repeating_it(given: str) -> None:
    with pytest.raises(PermanentError, match=r"^--prometheus: ") as caught:
        server([given])
    assert "secret" not in str(caught.value)


def test_a_password_in_the_address_is_refused() -> None:
    with pytest.raises(PermanentError, match="give --user and --password-file") as caught:
        server(["http://me:secret@prometheus:9090"])
    assert "secret" not in str(caught.value)


def test_a_token_is_sent(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("abc.def\n")
    words = [LOCAL, "--bearer-token-file", str(file), "--header", "X-Scope-OrgID: team: a"]
    found = server(words)
    assert found.headers == {"Authorization": "Bearer abc.def", "X-Scope-OrgID": "team: a"}
    assert "abc.def" not in repr(found)


def test_a_user_is_sent() -> None:
    found = server([LOCAL, "--user", "me"], **PASSWORD)
    assert found.headers == {"Authorization": "Basic bWU6c2VjcmV0"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must contain only the token"),
        ("two words", "must contain only the token"),
        ("two\nlines", "must contain only the token"),
    ],
)
def test_a_token_must_be_one_word(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(PermanentError, match=message):
        server([LOCAL, "--bearer-token-file", str(file)])


def test_contradictions_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("abc")
    token = ["--bearer-token-file", str(file)]
    with pytest.raises(PermanentError, match="exclude each other"):
        server([LOCAL, "--user", "me", *token], **PASSWORD)
    with pytest.raises(PermanentError, match="give an https:// address, or --insecure"):
        server([FAR, *token])
    assert server([FAR, *token, "--insecure"]).headers
    with pytest.raises(PermanentError, match="--ca-file is for TLS: give an https:// address"):
        server([LOCAL, "--ca-file", "ca.pem"])
    with pytest.raises(PermanentError, match="No such file or directory; check the path"):
        server([LOCAL, "--bearer-token-file", str(tmp_path / "none")])


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("X-Scope-OrgID", "write a header such as 'X-Scope-OrgID: TENANT'"),
        ("A B: c", "write a header such as"),
        ("X-A: a\nb", "has characters that a header cannot have"),
        ("Authorization: Bearer secret", "use --bearer-token-file, or --user"),
        ("Host: x", "podgpu sets Host itself"),
    ],
)
def test_a_header_that_cannot_be_sent_is_refused(header: str, message: str) -> None:
    with pytest.raises(argparse.ArgumentError, match=message) as caught:
        server([LOCAL, "--header", header])
    assert "secret" not in str(caught.value)


def test_a_server_without_credentials_gets_none() -> None:
    found = server([FAR, "--query-timeout", "30s"])
    assert (found.headers, found.timeout, found.context) == ({}, 30.0, None)
    assert server(["https://prometheus.example"]).context is not None
