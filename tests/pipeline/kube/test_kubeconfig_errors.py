"""What is said of credentials that can't be used: what is wrong, and nothing of what they are."""

import base64
import json
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pipeline.base.errors import ApiError, TransientError
from pipeline.kube.credentials import KubeconfigFile, ServiceAccount
from pipeline.kube.kubeconfig_errors import describe_error, program
from tests.pipeline.kube.conftest import connected, kubeconfig
from tests.podgpu.doctor.support import page, serving, write

SECRET = "hunter2"  # noqa: S105 - of the tests
VERSION = "client.authentication.k8s.io/v1"
LONG = base64.b64encode(SECRET.encode() * 40).decode()
"""What belongs into a file, where the file's name belongs."""


def plugin(folder: Path, does: str, **more: Any) -> Path:
    """Return a kubeconfig with a plugin that does this, as commands of a shell."""
    script = write(folder / "plugin", f"#!/bin/sh\n{does}\n")
    script.chmod(0o700)
    run = {"command": str(script), "apiVersion": VERSION, **more}
    return kubeconfig(folder / "config", "http://127.0.0.1:1", {"exec": run})


def answer(status: object, version: str = VERSION) -> str:
    printed = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})
    return f"cat <<'END'\n{printed}\nEND"


def renewed(issuer: str) -> dict[str, object]:
    keys = ("client-id", "client-secret", "refresh-token")
    given = {"idp-issuer-url": issuer, **dict.fromkeys(keys, SECRET)}
    return {"auth-provider": {"name": "oidc", "config": given}}


USERS: dict[str, tuple[dict[str, Any], str]] = {
    "a key in place of its file": ({"client-key": LONG}, "a certificate or key file that it names"),
    "a key that is no base64": ({"client-key-data": SECRET + "é"}, "it is not a valid kubeconfig"),
    "a token in place of its file": ({"tokenFile": SECRET}, "tokenFile: No such file"),
    "args that are no list": (
        {"exec": {"command": "true", "apiVersion": VERSION, "args": {"a": SECRET}}},
        "the args of exec are not a list",
    ),
    "a variable without a name": (
        {"exec": {"command": "true", "apiVersion": VERSION, "env": [{"value": SECRET}]}},
        "there is no name",
    ),
    "words in the command": (
        {"exec": {"command": f"/opt/get --password {SECRET}", "apiVersion": VERSION}},
        "the credential plugin /opt/get ... cannot be started: No such file or directory",
    ),
    "a command that is missing": ({"exec": {"args": [SECRET]}}, "exec has no command"),
    "an id-token that is none": (
        {"auth-provider": {"name": "oidc", "config": {"id-token": f"a.{SECRET}.b"}}},
        "the file, or a token in it, is not text",
    ),
    "an id-token of two parts": (
        {"auth-provider": {"name": "oidc", "config": {"id-token": f"a.{SECRET}"}}},
        "id-token is not a JWT",
    ),
    "an issuer with a password": (renewed(f"http://u:{SECRET}@127.0.0.1:1"), "none of it is said"),
    "an issuer that is no address": (renewed(f"http://[{SECRET}"), "it is not a valid kubeconfig"),
}
PLUGINS: dict[str, tuple[str, str]] = {
    "fails and says why": (f"echo {SECRET} >&2; exit 3", "plugin ended with status 3; its output"),
    "fails and says much": (
        f"yes {SECRET} | head -c 60000 >&2; exit 3",
        "plugin ended with status 3",
    ),
    "fails with control characters": (
        f"printf '\\033[2J{SECRET}\\a' >&2; exit 3",
        "plugin ended with status 3",
    ),
    "fails with bytes": (f"printf '{SECRET}\\377' >&2; exit 3", "an unusable response"),
    "is killed": (f"echo {SECRET} >&2; kill -9 $$", "ended with status -9"),
    "writes no JSON": (f"echo {SECRET}", "plugin returned no JSON"),
    "writes bytes": (f"printf '{SECRET}\\377'", "plugin returned no JSON"),
    "writes a list": (f"echo '[\"{SECRET}\"]'", "plugin returned a response without apiVersion"),
    "writes no status": (
        f'echo \'{{"apiVersion": "{VERSION}", "kind": "{SECRET}"}}\'',
        "plugin returned a response without status",
    ),
    "writes another version": (
        answer({"token": SECRET}, SECRET),
        "plugin returned a response with another apiVersion",
    ),
    "writes a status that is a text": (answer(f"token {SECRET}"), "an unusable response"),
    "writes a time that is none": (
        answer({"token": SECRET, "expirationTimestamp": SECRET}),
        "an unusable response",
    ),
    "gives no token": (answer({"tokn": SECRET}), "returned neither a token nor a certificate"),
    "gives a certificate alone": (
        answer({"clientCertificateData": SECRET}),
        "returned neither a token nor a certificate with its key",
    ),
}
FILES: dict[str, tuple[str, str]] = {
    "an alias": (
        f"users: [{{name: u, user: {{password: *{SECRET} }}}}]",
        "it is not valid YAML, see",
    ),
    "a tag": (f"current-context: a\npassword: !{SECRET} x", "it is not valid YAML, see line 2"),
    "a quote without its end": (
        f'current-context: a\ntoken: "{SECRET}',
        "it is not valid YAML, see line",
    ),
    "a text alone": (SECRET, "it is not a valid kubeconfig"),
    "a user without the key user": (
        yaml.safe_dump(
            {
                "current-context": "a",
                "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
                "clusters": [{"name": "a", "cluster": {"server": "http://x"}}],
                "users": [{"name": "a", "token": SECRET}],
            }
        ),
        "there is no user",
    ),
    "a context that is not there": (
        yaml.safe_dump({"current-context": "a", "users": [{"name": "a", "token": SECRET}]}),
        "contexts does not have the entry",
    ),
    "no context": (yaml.safe_dump({"users": [{"name": SECRET}]}), "there is no current-context"),
}


def refused(path: Path, caplog: pytest.LogCaptureFixture) -> str:
    """Return what is said of a kubeconfig, having seen that it and the log tell no secret."""
    with caplog.at_level(logging.DEBUG), pytest.raises(TransientError) as caught:
        KubeconfigFile(path, plugins=True).load(reload=False)
    # A loop in debug mode logs what it starts; podgpu's never is in it.
    logged = [each.getMessage() for each in caplog.records if each.name != "asyncio"]
    whole = "".join([*traceback.format_exception(caught.value), *logged])
    assert SECRET not in whole.replace(str(path.parent), "")
    assert LONG[:16] not in whole
    said = str(caught.value)
    assert said.startswith(f"{path}: ")
    assert said.isprintable()
    assert len(said.removeprefix(str(path)).replace(str(path.parent), "")) < 400
    return said


@pytest.mark.parametrize("case", USERS)
def test_of_a_user_nothing_is_repeated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    user, why = USERS[case]
    path = kubeconfig(tmp_path / "config", "https://127.0.0.1:1", user)
    said = refused(path, caplog)
    assert why in said or why == "none of it is said", said


@pytest.mark.parametrize("case", PLUGINS)
def test_of_what_a_plugin_writes_nothing_is_repeated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], case: str
) -> None:
    does, why = PLUGINS[case]
    assert why in refused(plugin(tmp_path, does), caplog)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("case", FILES)
def test_of_a_file_nothing_is_repeated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    text, why = FILES[case]
    assert why in refused(write(tmp_path / "config", text), caplog)


def test_files_that_are_missing_are_named_where_they_are_names(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    said = refused(tmp_path / "config", caplog)
    assert "No such file or directory; check that the file exists and is readable" in said
    path = kubeconfig(tmp_path / "config", "https://x", {"client-key": "pki/client.key"})
    assert f"does not exist ({tmp_path}/pki/client.key); mount the file" in refused(path, caplog)


def test_what_embedded_certificates_need_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A root that is mounted read-only, and no folder for what goes into files."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    key = base64.b64encode(f"{SECRET} {tmp_path}".encode()).decode()
    path = kubeconfig(tmp_path / "config", "https://x", {"client-key-data": key})
    assert f"{tmp_path}/none/" in (said := refused(path, caplog))
    assert "let podgpu write there" in said


TOKENS = [f"{SECRET}\r\nX-More: {SECRET}", f"{SECRET}\x00", f"{SECRET}\udcff", f"{SECRET}\x1b[2J"]


@pytest.mark.parametrize("token", TOKENS)
async def test_a_token_that_no_header_can_have(tmp_path: Path, token: str) -> None:
    async with serving(lambda _: page(b"{}", status="401 no")) as port:
        path = kubeconfig(tmp_path / "config", f"http://127.0.0.1:{port}", {"token": token})
        async with connected(KubeconfigFile(path)) as api:
            with pytest.raises(ApiError) as caught:
                await api.get("/api/v1/pods", {})
    assert SECRET not in str(caught.value)
    assert str(caught.value).isprintable()


PLACES: dict[str, Callable[[int], tuple[str, dict[str, str]]]] = {
    "of the server": lambda port: (f"http://u:{SECRET}@127.0.0.1:{port}", {}),
    "of the proxy": lambda port: (
        "http://server.invalid",
        {"proxy-url": f"http://u:{SECRET}@127.0.0.1:{port}"},
    ),
    "of a proxy before TLS": lambda port: (
        "https://server.invalid",
        {"proxy-url": f"http://u:{SECRET}@127.0.0.1:{port}"},
    ),
    "of a proxy that is none": lambda _: (
        "https://server.invalid",
        {"proxy-url": f"http://u:{SECRET}@h:x"},
    ),
}


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("place", PLACES)
async def test_a_password_in_an_address(tmp_path: Path, place: str, there: bool) -> None:
    async with serving(lambda _: page(b"{}", status="407 no")) as port:
        server, cluster = PLACES[place](port if there else 1)
        path = kubeconfig(tmp_path / "config", server, {}, **cluster)
        async with connected(KubeconfigFile(path)) as api:
            with pytest.raises(ApiError) as caught:
                await api.get("/api/v1/pods", {})
    assert SECRET not in str(caught.value)
    assert "/api/v1/pods" in str(caught.value)


@pytest.mark.parametrize("content", [b"", SECRET.encode() + b"\xff", b"\x00" * 9])
def test_a_pod_s_own_token_is_not_repeated(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "token").write_bytes(content)
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
    with pytest.raises(TransientError) as caught:
        ServiceAccount(tmp_path, environ).load(reload=False)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@given(st.text(), st.sampled_from([Exception, ValueError, OSError, KeyError]), st.booleans())
def test_of_an_error_that_no_one_knows_the_kind_alone_is_reported(
    text: str, kind: type[Exception], ran: bool
) -> None:
    """Whatever another version of the library may say."""
    said = describe_error(kind(f"{SECRET}{text}"), Path("/config"), ["/opt/plugin"] if ran else [])
    assert SECRET not in said
    assert said.isprintable()


@given(st.text())
def test_a_plugin_has_a_short_name(text: str) -> None:
    assert program(text).isprintable()
    assert len(program(text)) <= 107
    assert SECRET not in program(f"get {text} {SECRET}")
