"""Errors about unusable credentials: they name the fault, and contain no secret."""

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
"""The content of a file, in a place where its name is expected."""


def plugin(folder: Path, script: str, **more: Any) -> Path:
    """Return a kubeconfig with a credential plugin that runs shell commands."""
    path = write(folder / "plugin", f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    run = {"command": str(path), "apiVersion": VERSION, **more}
    return kubeconfig(folder / "config", "http://127.0.0.1:1", {"exec": run})


def printing(status: object, version: str = VERSION) -> str:
    credential = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})
    return f"cat <<'END'\n{credential}\nEND"


def oidc_user(issuer: str) -> dict[str, object]:
    keys = ("client-id", "client-secret", "refresh-token")
    config = {"idp-issuer-url": issuer, **dict.fromkeys(keys, SECRET)}
    return {"auth-provider": {"name": "oidc", "config": config}}


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
    "an issuer with a password": (oidc_user(f"http://u:{SECRET}@127.0.0.1:1"), "any error"),
    "an issuer that is no address": (
        oidc_user(f"http://[{SECRET}"),
        "it is not a valid kubeconfig",
    ),
}
PLUGINS: dict[str, tuple[str, str]] = {
    "fails with a message": (
        f"echo {SECRET} >&2; exit 3",
        "plugin ended with status 3; its output",
    ),
    "fails with a long message": (
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
        printing({"token": SECRET}, SECRET),
        "plugin returned a response whose apiVersion differs",
    ),
    "writes a status that is a text": (printing(f"token {SECRET}"), "an unusable response"),
    "writes a time that is none": (
        printing({"token": SECRET, "expirationTimestamp": SECRET}),
        "an unusable response",
    ),
    "gives no token": (printing({"tokn": SECRET}), "returned neither a token nor a certificate"),
    "gives a certificate alone": (
        printing({"clientCertificateData": SECRET}),
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


def load_error(path: Path, caplog: pytest.LogCaptureFixture) -> str:
    """Return the error of loading a kubeconfig; assert that it and the log contain no secret."""
    with caplog.at_level(logging.DEBUG), pytest.raises(TransientError) as caught:
        KubeconfigFile(path, plugins=True).load(reload=False)
    # An event loop in debug mode logs what it starts; podgpu's never runs in that mode.
    logged = [each.getMessage() for each in caplog.records if each.name != "asyncio"]
    whole = "".join([*traceback.format_exception(caught.value), *logged])
    assert SECRET not in whole.replace(str(path.parent), "")
    assert LONG[:16] not in whole
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert message.isprintable()
    assert len(message.removeprefix(str(path)).replace(str(path.parent), "")) < 400
    return message


@pytest.mark.parametrize("case", USERS)
def test_the_error_about_a_user_contains_no_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    user, expected = USERS[case]
    path = kubeconfig(tmp_path / "config", "https://127.0.0.1:1", user)
    message = load_error(path, caplog)
    assert expected in message or expected == "any error", message


@pytest.mark.parametrize("case", PLUGINS)
def test_the_error_about_a_plugin_does_not_contain_its_output(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], case: str
) -> None:
    script, expected = PLUGINS[case]
    assert expected in load_error(plugin(tmp_path, script), caplog)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("case", FILES)
def test_the_error_about_a_file_does_not_contain_its_content(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    text, expected = FILES[case]
    assert expected in load_error(write(tmp_path / "config", text), caplog)


def test_missing_files_are_named_in_the_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    message = load_error(tmp_path / "config", caplog)
    assert "No such file or directory; check that the file exists and is readable" in message
    path = kubeconfig(tmp_path / "config", "https://x", {"client-key": "pki/client.key"})
    assert f"does not exist ({tmp_path}/pki/client.key); mount the file" in load_error(path, caplog)


def test_embedded_certificates_need_a_writable_temporary_folder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The root file system is mounted read-only, and there is no temporary folder."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    key = base64.b64encode(f"{SECRET} {tmp_path}".encode()).decode()
    path = kubeconfig(tmp_path / "config", "https://x", {"client-key-data": key})
    assert f"{tmp_path}/none/" in (message := load_error(path, caplog))
    assert "let podgpu write there" in message


TOKENS = [f"{SECRET}\r\nX-More: {SECRET}", f"{SECRET}\x00", f"{SECRET}\udcff", f"{SECRET}\x1b[2J"]


@pytest.mark.parametrize("token", TOKENS)
async def test_a_token_with_characters_that_headers_forbid_is_not_repeated(
    tmp_path: Path, token: str
) -> None:
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


@pytest.mark.parametrize("is_reachable", [True, False])
@pytest.mark.parametrize("place", PLACES)
async def test_a_password_in_an_address_is_not_repeated(
    tmp_path: Path, place: str, is_reachable: bool
) -> None:
    async with serving(lambda _: page(b"{}", status="407 no")) as port:
        server, cluster = PLACES[place](port if is_reachable else 1)
        path = kubeconfig(tmp_path / "config", server, {}, **cluster)
        async with connected(KubeconfigFile(path)) as api:
            with pytest.raises(ApiError) as caught:
                await api.get("/api/v1/pods", {})
    assert SECRET not in str(caught.value)
    assert "/api/v1/pods" in str(caught.value)


@pytest.mark.parametrize("content", [b"", SECRET.encode() + b"\xff", b"\x00" * 9])
def test_an_invalid_service_account_token_is_not_repeated(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "token").write_bytes(content)
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
    with pytest.raises(TransientError) as caught:
        ServiceAccount(tmp_path, environ).load(reload=False)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@given(st.text(), st.sampled_from([Exception, ValueError, OSError, KeyError]), st.booleans())
def test_of_an_unknown_error_only_the_type_is_reported(
    text: str, kind: type[Exception], plugin_ran: bool
) -> None:
    """Another version of the library may raise any error."""
    message = describe_error(
        kind(f"{SECRET}{text}"), Path("/config"), ["/opt/plugin"] if plugin_ran else []
    )
    assert SECRET not in message
    assert message.isprintable()


@given(st.text())
def test_the_name_of_a_plugin_is_short_and_without_arguments(text: str) -> None:
    assert program(text).isprintable()
    assert len(program(text)) <= 107
    assert SECRET not in program(f"get {text} {SECRET}")
