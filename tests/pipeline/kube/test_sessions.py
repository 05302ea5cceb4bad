"""One session for each set of credentials, for as long as somebody uses it."""

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
            # Whoever stays keeps it.
            await first.get("/", {})
            await other.get("/", {})
        assert server.tokens() == ["1", "1", "2"]
        assert server.connections == 2
        async with sessions.session(one) as again:
            assert again is not first


async def test_those_who_join_at_once_share_too(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "one", "http://127.0.0.1:1", {"token": "1"})
    sessions = Sessions()
    async with AsyncExitStack() as stack:
        joined = await asyncio.gather(
            *(stack.enter_async_context(sessions.session(path)) for _ in range(5))
        )
        assert len(set(map(id, joined))) == 1


async def test_without_credentials_no_one_joins_until_there_are_some(tmp_path: Path) -> None:
    path = tmp_path / "later"
    sessions = Sessions()
    for _ in range(2):
        with pytest.raises(TransientError, match=str(path)):
            async with sessions.session(path):
                pass
    kubeconfig(path, "http://127.0.0.1:1", {"token": "1"})
    async with sessions.session(path):
        pass


async def test_in_no_pod_there_are_no_credentials_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(TransientError, match=f"{tmp_path}/token"):
        async with Sessions(account=tmp_path).session(None):
            pass


async def test_giving_up_while_joining_leaves_nothing(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "one", "http://127.0.0.1:1", {"token": "1"})
    sessions = Sessions()

    async def join() -> None:
        async with sessions.session(path):
            await asyncio.sleep(60)

    for turns in range(5):
        task = asyncio.create_task(join())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert sessions._shared == {}
