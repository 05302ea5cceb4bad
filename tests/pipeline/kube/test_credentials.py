"""Rotated tokens and certificates, and where credentials are read from."""

import asyncio
import json
import os
import signal
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.base.errors import ApiError, TransientError
from pipeline.kube.credentials import KubeconfigFile, ServiceAccount
from tests.pipeline.kube.conftest import Server, account, connected, kubeconfig, says

PODS = "/api/v1/pods"


class TokenCheck:
    """A responder that accepts requests with the current token only."""

    def __init__(self, token: str) -> None:
        self.token = token

    async def __call__(self, head: str, writer: asyncio.StreamWriter) -> None:
        known = f"Authorization: Bearer {self.token}\r\n" in head
        await says("{}", 200 if known else 401)(head, writer)


@pytest.fixture
def expired(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make credentials count as old immediately."""
    monkeypatch.setattr("pipeline.kube.client._MAX_CREDENTIAL_AGE", -1.0)
    return iter(())


async def test_the_service_account_of_the_pod_is_used_without_configuration(tmp_path: Path) -> None:
    async with Server(says("{}")).serving("first") as server:
        async with connected(account(tmp_path, server)) as api:
            assert await api.get(PODS, {}) == b"{}"
        assert server.tokens() == ["sesame"]


async def test_a_rotated_token_is_used_when_the_credentials_are_read_again(
    tmp_path: Path, expired: None
) -> None:
    async with Server(says("{}")).serving("first") as server:
        pod_account = account(tmp_path, server)
        async with connected(pod_account) as api:
            await api.get(PODS, {})
            pod_account.write_token("open\n")
            await api.get(PODS, {})
        assert server.tokens() == ["sesame", "open"]
        # Only the token changed: the connection is the same.
        assert server.connections == 1


async def test_a_rotated_token_is_used_immediately_after_the_old_one_is_refused(
    tmp_path: Path,
) -> None:
    token_check = TokenCheck("sesame")
    async with Server(token_check).serving("first") as server:
        pod_account = account(tmp_path, server)
        async with connected(pod_account) as api:
            await api.get(PODS, {})
            token_check.token = "open"  # noqa: S105 - of the test
            pod_account.write_token("open")
            assert await api.get(PODS, {}) == b"{}"
        assert server.tokens() == ["sesame", "sesame", "open"]


async def test_a_refused_token_is_tried_twice_and_its_file_is_named(tmp_path: Path) -> None:
    async with Server(TokenCheck("open")).serving("first") as server:
        pod_account = account(tmp_path, server)
        async with connected(pod_account) as api:
            with pytest.raises(ApiError) as caught:
                await api.get(PODS, {})
            assert len(server.heads) == 2
    assert caught.value.status == 401
    assert str(pod_account.folder / "token") in str(caught.value)


@pytest.mark.parametrize("code", [400, 401, 403, 404, 500])
async def test_a_token_that_the_server_repeats_is_removed_from_the_error(
    tmp_path: Path, code: int
) -> None:
    body = {"code": code, "reason": "x sesame", "message": "no such token: Bearer sesame!"}
    async with Server(says(json.dumps(body), code)).serving("first") as server:
        async with connected(account(tmp_path, server)) as api:
            with pytest.raises(ApiError, match="no such token: Bearer ") as caught:
                await api.get(PODS, {})
        assert "sesame" in server.tokens()
    assert "sesame" not in str(caught.value) + caught.value.reason


async def test_the_token_file_is_not_read_for_each_request(tmp_path: Path) -> None:
    async with Server(says("{}")).serving("first") as server:
        pod_account = account(tmp_path, server)
        async with connected(pod_account) as api:
            pod_account.write_token("open")
            await api.get(PODS, {})
        assert server.tokens() == ["sesame"]


async def test_while_the_token_file_is_missing_the_last_token_is_used(
    tmp_path: Path, expired: None
) -> None:
    async with Server(says("{}")).serving("first") as server:
        pod_account = account(tmp_path, server)
        async with connected(pod_account) as api:
            (pod_account.folder / "token").unlink()
            assert await api.get(PODS, {}) == b"{}"
            pod_account.write_token("open")
            assert await api.get(PODS, {}) == b"{}"
        assert server.tokens() == ["sesame", "open"]


async def test_a_refused_token_whose_file_is_missing_is_reported_as_missing(tmp_path: Path) -> None:
    async with Server(says("", 401)).serving("first") as server:
        pod_account = account(tmp_path, server)
        async with connected(pod_account) as api:
            (pod_account.folder / "token").unlink()
            with pytest.raises(ApiError, match=r"no service account credentials: .* No such file"):
                await api.get(PODS, {})


async def test_a_new_certificate_authority_is_used_after_a_tls_failure(tmp_path: Path) -> None:
    async with Server(says("{}")).serving("first") as server:
        pod_account = account(tmp_path, server)
        api_context = connected(pod_account)
        api = await api_context.__aenter__()
        await api.get(PODS, {})
    async with server.serving("second"):
        with pytest.raises(ApiError, match=r"TLS failed: .*; check that the certificates"):
            await api.get(PODS, {})
        pod_account.write_authority("second")
        assert await api.get(PODS, {}) == b"{}"
        await api_context.__aexit__(None, None, None)


async def test_a_stream_continues_while_new_connections_are_opened(
    tmp_path: Path, expired: None
) -> None:
    gate = asyncio.Event()

    async def respond(head: str, writer: asyncio.StreamWriter) -> None:
        if "watch=true" not in head:
            await says("{}")(head, writer)
            return
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number in range(2):
            writer.write(f"4\r\n{{{number}}}\n\r\n".encode())
            await gate.wait()
        writer.write(b"0\r\n\r\n")

    async with Server(respond).serving("first") as server:
        pod_account = account(tmp_path, server)
        async with (
            connected(pod_account) as api,
            api.watch(PODS, {"watch": "true"}, silence=5) as sent,
        ):
            assert await anext(sent) == b"{0}"
            pod_account.write_authority("first")
            await api.get(PODS, {})
            assert server.connections == 2
            gate.set()
            assert [line async for line in sent] == [b"{1}"]


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"KUBERNETES_SERVICE_HOST": "x"},
        {"KUBERNETES_SERVICE_HOST": "", "KUBERNETES_SERVICE_PORT": ""},
    ],
)
def test_outside_a_pod_the_error_names_what_is_missing(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    with pytest.raises(TransientError) as caught:
        ServiceAccount(tmp_path, environ).load(reload=False)
    text = str(caught.value)
    assert "KUBERNETES_SERVICE_HOST" in text
    assert ("(KUBERNETES_SERVICE_HOST is not set)" in text) == (not environ)
    assert f"{tmp_path}/token" in text
    assert "set kubeconfig" in text


@pytest.mark.parametrize("token", ["", None])
def test_a_pod_without_a_token_is_an_error(tmp_path: Path, token: str | None) -> None:
    if token is not None:
        (tmp_path / "token").write_text(token)
    environ = {"KUBERNETES_SERVICE_HOST": "x", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(TransientError, match="no service account credentials"):
        ServiceAccount(tmp_path, environ).load(reload=False)


@pytest.mark.parametrize(
    "content",
    [
        None,
        "",
        "[]",
        "{",
        "a: b: c",
        "current-context: x",
        '{"current-context": "x", "contexts": [{"name": "x", "context": {}}]}',
        '{"current-context": "x", "contexts": 7, "clusters": {}, "users": null}',
        b"\xff\xfe",
    ],
)
def test_an_invalid_kubeconfig_is_named_in_the_error(
    tmp_path: Path, content: str | bytes | None
) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(TransientError) as caught:
        KubeconfigFile(path).load(reload=False)
    assert str(caught.value).startswith(f"{path}: no credentials in this kubeconfig: ")
    assert str(caught.value).isprintable()


def test_tokens_token_files_and_passwords_are_read(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file\n")
    for user, header in (
        ({"tokenFile": "token"}, "Bearer from-file"),
        ({"token": "inline"}, "Bearer inline"),
        ({"username": "u", "password": "p"}, "Basic dTpw"),
        ({}, ""),
    ):
        config = KubeconfigFile(kubeconfig(tmp_path / "config", "http://x", dict(user)))
        access = config.load(reload=False)
        assert access.authorization == header
        assert access.host == "http://x"


def test_a_token_file_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one")
    config = KubeconfigFile(kubeconfig(tmp_path / "config", "http://x", {"tokenFile": "token"}))
    assert config.load(reload=False).authorization == "Bearer one"
    (tmp_path / "token").write_text("two")
    assert config.load(reload=False).authorization == "Bearer two"


def test_a_replaced_kubeconfig_is_read_again(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", "http://x", {"token": "one"})
    config = KubeconfigFile(path)
    before = config.load(reload=False)
    kubeconfig(path, "http://another", {"token": "two"})
    after = config.load(reload=False)
    assert (after.host, after.authorization) == ("http://another", "Bearer two")
    assert before.connection != after.connection


def plugin(folder: Path, *, expires: str = "", fails: bool = False, first: str = "") -> Path:
    """Return a kubeconfig with a credential plugin that counts its runs in its tokens.

    `first` are shell commands that the plugin runs before everything else.
    """
    script = folder / "plugin"
    token = f'"token": "run-$n"{expires}'
    script.write_text(
        "#!/bin/sh\n"
        f"{first}\n"
        f"{'echo no luck >&2; exit 3' if fails else ''}\n"
        f"echo x >> {folder}/runs; n=$(wc -l < {folder}/runs)\n"
        "cat <<END\n"
        '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", '
        f'"status": {{{token}}}}}\nEND\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    run = {"command": str(script), "apiVersion": "client.authentication.k8s.io/v1"}
    return kubeconfig(folder / "config", "http://x", {"exec": run})


def test_a_plugin_runs_again_if_its_token_expires_or_is_refused(tmp_path: Path) -> None:
    far = ', "expirationTimestamp": "2999-01-01T00:00:00Z"'
    config = KubeconfigFile(plugin(tmp_path, expires=far), plugins=True)
    tokens = [config.load(reload=again).authorization for again in (False, False, True)]
    assert tokens == ["Bearer run-1", "Bearer run-1", "Bearer run-2"]


def test_a_failure_of_a_plugin_is_reported_with_its_status(tmp_path: Path) -> None:
    config = KubeconfigFile(plugin(tmp_path, fails=True), plugins=True)
    with pytest.raises(
        TransientError, match="plugin ended with status 3; its output may contain secrets"
    ):
        config.load(reload=False)


def resource_count() -> int:
    """Return the number of threads and open file descriptors."""
    return threading.active_count() + sum(1 for _ in Path("/proc/self/fd").iterdir())


def running(pids: Path) -> list[str]:
    """Return which of the processes in a file still run; zombies do not count."""
    found = []
    for pid in pids.read_text().split():
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            continue
        found += [pid] if state != "Z" else []
    return found


HANGING = {
    "the plugin itself": "echo $$ >> {pids}; exec sleep 60",
    "a child": "echo $$ >> {pids}; sleep 60 & echo $! >> {pids}; wait",
    "a grandchild": "sh -c 'echo $$ >> {pids}; sleep 60 & echo $! >> {pids}; wait'",
    "ignoring signals": "trap '' TERM INT HUP; echo $$ >> {pids}; while :; do sleep 1; done",
    "a process left running": "sleep 60 & echo $! >> {pids}; exit 0",
    "output left open": "sleep 60 & echo $! >> {pids}; echo '{{}}'; exit 1",
}


@pytest.mark.slow
@pytest.mark.parametrize("script", HANGING.values(), ids=list(HANGING))
def test_a_plugin_that_hangs_is_killed_with_all_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.setattr("pipeline.kube.credentials._PLUGIN_SECONDS", 0.5)
    pids = tmp_path / "pids"
    config = KubeconfigFile(plugin(tmp_path, first=script.format(pids=pids)), plugins=True)
    before = resource_count()
    for _ in range(3):
        with pytest.raises(TransientError) as caught:
            config.load(reload=False)
        assert str(caught.value) == (
            f"{tmp_path}/config: the credential plugin {tmp_path}/plugin did not respond within "
            "0.5 s and was killed; check that it runs without user input"
        )
    deadline = time.monotonic() + 5
    while running(pids):
        assert time.monotonic() < deadline, running(pids)
        time.sleep(0.01)
    assert resource_count() <= before + 2


@pytest.mark.slow
def test_a_plugin_that_hangs_after_its_token_expires_is_killed_and_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    past = ', "expirationTimestamp": "2000-01-01T00:00:00Z"'
    pids, stuck = tmp_path / "pids", tmp_path / "stuck"
    first = f"echo $$ >> {pids}; [ -e {stuck} ] && sleep 60"
    config = KubeconfigFile(plugin(tmp_path, expires=past, first=first), plugins=True)
    assert config.load(reload=False).authorization == "Bearer run-1"
    stuck.touch()
    with monkeypatch.context() as patch:
        patch.setattr("pipeline.kube.credentials._PLUGIN_SECONDS", 0.5)
        with pytest.raises(TransientError, match="did not respond within"):
            config.load(reload=False)
    assert running(pids) == []
    stuck.unlink()
    assert config.load(reload=False).authorization == "Bearer run-2"


def test_a_plugin_that_reads_input_gets_end_of_file(tmp_path: Path) -> None:
    config = KubeconfigFile(plugin(tmp_path, first="read answer && sleep 60"), plugins=True)
    assert config.load(reload=False).authorization == "Bearer run-1"


def test_a_background_process_that_a_plugin_detached_keeps_running(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    first = f"sleep 60 >/dev/null 2>&1 & echo $! >> {pids}"
    config = KubeconfigFile(plugin(tmp_path, first=first), plugins=True)
    assert config.load(reload=False).authorization == "Bearer run-1"
    [pid] = running(pids)
    os.kill(int(pid), signal.SIGKILL)
