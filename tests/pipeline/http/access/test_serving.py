"""Tests of the section `http` of the main configuration file, at the start and at reloads."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from config.schema import Config, Http
from config.value_types import ListenAddress
from pipeline.base.errors import PermanentError
from pipeline.http.listener_registry import ListenerRegistry
from pipeline.runtime import daemon
from pipeline.runtime.http_service import HttpService
from pipeline.runtime.runtime import Runtime
from podgpu.cli import main
from tests.e2e.processes import free_ports
from tests.pipeline.http.access.tls_clients import client_context
from tests.pipeline.runtime.runtimes import gpus, registered
from tests.support.components import Registered, configured
from tests.support.http import Clients, says
from tests.support.web import Web, basic, hashed

__all__ = ["registered"]


def free_port() -> int:
    return free_ports(1)[0]


def local(port: int) -> ListenAddress:
    return ListenAddress("127.0.0.1", port)


async def get(port: int, path: str, *lines: str) -> tuple[int, str]:
    async with Clients() as clients:
        return await (await clients.connect(port)).get(path, *lines)


async def closed(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return True
    writer.close()
    await writer.wait_closed()
    return False


@asynccontextmanager
async def entered(http: Http) -> AsyncIterator[HttpService]:
    serving = HttpService(ListenerRegistry("node-1", lambda: (True, "ok"), lambda: (True, "ok")))
    await serving.enter(http)
    try:
        yield serving
    finally:
        await serving.leave()


async def test_a_listener_is_served_without_sinks() -> None:
    port = free_port()
    async with entered(Http(listen=local(port))) as serving:
        assert await get(port, "/healthz") == (200, "ok\n")
        assert "node-1" in (await get(port, "/"))[1]
        serving.rename("node-2")
        assert "node-2" in (await get(port, "/"))[1]
    assert await closed(port)


async def test_a_sink_shares_the_listener_which_stays_after_the_sink() -> None:
    port = free_port()
    async with entered(Http(listen=local(port))) as serving:
        async with serving.listeners.listen(local(port)) as mounts:
            mounts.mount("/a", says("a"), title="A")
            assert await get(port, "/a") == (200, "a")
        assert (await get(port, "/a"))[0] == 404


async def test_no_address_is_served_without_the_setting() -> None:
    async with entered(Http()) as serving:
        assert not serving.listeners._listeners


async def test_a_port_that_is_in_use_ends_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = local(taken.getsockname()[1])
        with pytest.raises(PermanentError, match="the port is in use"):
            await entered(Http(listen=address)).__aenter__()


async def test_a_new_address_replaces_the_first_one() -> None:
    first, second = free_port(), free_port()
    async with entered(Http(listen=local(first))) as serving:
        async with serving.changed(Http(listen=local(second))):
            assert await get(first, "/healthz") == (200, "ok\n")
        assert await get(second, "/healthz") == (200, "ok\n")
        assert await closed(first)
        async with serving.changed(Http()):
            pass
        assert await closed(second)


async def test_a_change_from_all_addresses_to_one_keeps_the_port() -> None:
    port = free_port()
    async with entered(Http(listen=ListenAddress("", port))) as serving:
        async with serving.changed(Http(listen=local(port))):
            pass
        assert await get(port, "/healthz") == (200, "ok\n")


async def test_a_failure_during_a_change_restores_the_previous_settings(web: Web) -> None:
    web.write("basic_auth_users:", f"  a: {hashed('one')}")
    first, second = free_port(), free_port()
    async with entered(Http(listen=local(first))) as serving:

        async def fails() -> None:
            async with serving.changed(Http(listen=local(second), web_config=web.path)):
                assert (await get(second, "/"))[0] == 401
                raise PermanentError("a sink")

        for _ in range(2):
            with pytest.raises(PermanentError, match="a sink"):
                await fails()
            assert await closed(second)
            assert (await get(first, "/"))[0] == 200


async def test_a_port_in_use_during_a_change_restores_the_previous_settings(web: Web) -> None:
    web.write("basic_auth_users:", f"  a: {hashed('one')}")
    port = free_port()
    async with entered(Http(listen=local(port))) as serving:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            other = Http(listen=local(taken.getsockname()[1]), web_config=web.path)
            with pytest.raises(PermanentError, match="the port is in use"):
                async with serving.changed(other):
                    raise AssertionError
        assert (await get(port, "/"))[0] == 200


async def test_a_web_config_can_be_added_and_removed(web: Web) -> None:
    web.write("basic_auth_users:", f"  a: {hashed('one')}")
    port = free_port()
    plain, guarded = Http(listen=local(port)), Http(listen=local(port), web_config=web.path)
    async with entered(plain) as serving, Clients() as clients:
        client = await clients.connect(port)
        assert (await client.get("/"))[0] == 200
        async with serving.changed(guarded):
            pass
        assert (await client.get("/"))[0] == 401
        assert (await client.get("/", basic("a", "one")))[0] == 200
        async with serving.changed(plain):
            pass
        assert (await client.get("/"))[0] == 200


async def test_a_web_config_applies_to_listeners_that_start_later(web: Web) -> None:
    web.secure()
    async with (
        entered(Http(web_config=web.path)) as serving,
        serving.listeners.listen(local(0)) as mounts,
        Clients() as clients,
    ):
        client = await clients.connect(mounts.port, client_context())
        assert (await client.get("/healthz"))[0] == 200


async def test_an_invalid_web_config_changes_nothing(web: Web) -> None:
    port = free_port()
    web.write("nonsense: 1")
    async with entered(Http(listen=local(port))) as serving:
        with pytest.raises(PermanentError, match="unknown key"):
            async with serving.changed(Http(web_config=web.path)):
                raise AssertionError
        assert (await get(port, "/"))[0] == 200


# With a runtime.


def with_http(http: Http, value: int = 0) -> Config:
    config = configured({"g": ("gpus", 0)}, {"k": ("keep", value)})
    return msgspec.structs.replace(config, http=http)


async def test_the_runtime_applies_changes_and_refuses_invalid_ones(
    registered: Registered, web: Web
) -> None:
    registered.sources = {"gpus": gpus}
    web.write("basic_auth_users:", f"  a: {hashed('one')}")
    first, second = free_port(), free_port()
    runtime, stop = Runtime(with_http(Http(listen=local(first)))), asyncio.Event()
    running = asyncio.create_task(runtime.run(stop))
    while await closed(first):
        await asyncio.sleep(0.01)
    assert (await get(first, "/"))[0] == 200
    assert await runtime.reload(with_http(Http(listen=local(second), web_config=web.path)))
    assert await closed(first)
    assert (await get(second, "/"))[0] == 401
    refused = with_http(Http(listen=local(second), web_config=web.folder / "none"))
    assert not await runtime.reload(refused)
    assert (await get(second, "/"))[0] == 401
    stop.set()
    await running
    assert await closed(second)


@pytest.mark.parametrize("text", [None, "nonsense: 1", "tls_server_config: {cert_file: a}"])
async def test_an_invalid_web_config_ends_podgpu_with_status_2(
    text: str | None, registered: Registered, web: Web, caplog: pytest.LogCaptureFixture
) -> None:
    registered.sources = {"gpus": gpus}
    if text is not None:
        web.write(text)
    runtime = Runtime(with_http(Http(listen=local(0), web_config=web.path)))
    assert await daemon.run(runtime, None) == 2
    assert f"http.web_config: {web.path}" in caplog.text


def test_check_reads_the_web_config(web: Web, capsys: pytest.CaptureFixture[str]) -> None:
    main_file = web.folder / "podgpu.yaml"
    main_file.write_text(
        f"http: {{web_config: {web.path}}}\n"
        "sources: {gpus: {kind: nvml}}\nsinks: {lines: {kind: jsonl}}\n"
    )
    web.secure()
    assert main(["check", "-c", str(main_file)]) == 0
    (web.folder / "tls.key").unlink()
    assert main(["check", "-c", str(main_file)]) == 2
    assert "tls_server_config.key_file: " in capsys.readouterr().err


@pytest.mark.slow
def test_without_a_web_config_its_libraries_are_not_loaded() -> None:
    program = (
        "import sys, pipeline.runtime.runtime, pipeline.http.listener_registry\n"
        "print([n for n in sys.modules if n == 'bcrypt' or n.startswith('pipeline.http.access')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True,
        cwd=Path(__file__).parents[4],
    )  # fmt: skip
    assert done.stdout.strip() == "[]"
