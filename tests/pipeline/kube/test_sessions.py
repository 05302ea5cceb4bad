"""Users of the same credentials share one session, which closes after its last user."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from pipeline.base.errors import TransientError
from pipeline.kube.sessions import Sessions
from tests.pipeline.kube.conftest import Server, kubeconfig, says


async def test_users_of_the_same_credentials_share_a_session(tmp_path: Path) -> None:
    async with Server(says("{}")).serving() as server:
        address = f"http://127.0.0.1:{server.port}"
        one = kubeconfig(tmp_path / "one", address, {"token": "1"})
        two = kubeconfig(tmp_path / "two", address, {"token": "2"})
        sessions = Sessions()
        async with sessions.session(one) as first, sessions.session(two) as other:
            async with sessions.session(one) as again:
                assert again is first
                assert other is not first
                await again.get("/", {})
            # The remaining users keep the session.
            await first.get("/", {})
            await other.get("/", {})
        assert server.tokens() == ["1", "1", "2"]
        assert server.connections == 2
        async with sessions.session(one) as again:
            assert again is not first


async def test_users_that_open_a_session_concurrently_share_it(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "one", "http://127.0.0.1:1", {"token": "1"})
    sessions = Sessions()
    async with AsyncExitStack() as stack:
        joined = await asyncio.gather(
            *(stack.enter_async_context(sessions.session(path)) for _ in range(5))
        )
        assert len(set(map(id, joined))) == 1


async def test_without_credentials_a_session_is_an_error_until_they_exist(tmp_path: Path) -> None:
    path = tmp_path / "later"
    sessions = Sessions()
    for _ in range(2):
        with pytest.raises(TransientError, match=str(path)):
            async with sessions.session(path):
                pass
    kubeconfig(path, "http://127.0.0.1:1", {"token": "1"})
    async with sessions.session(path):
        pass


async def test_outside_a_pod_a_session_without_kubeconfig_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(TransientError, match=f"{tmp_path}/token"):
        async with Sessions(account=tmp_path).session(None):
            pass


async def test_a_user_cancelled_while_opening_a_session_leaves_none_open(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "one", "http://127.0.0.1:1", {"token": "1"})
    sessions = Sessions()

    async def use_session() -> None:
        async with sessions.session(path):
            await asyncio.sleep(60)

    for steps in range(5):
        task = asyncio.create_task(use_session())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert sessions._shared == {}
