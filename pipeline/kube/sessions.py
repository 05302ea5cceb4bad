"""Sessions by credentials."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.component.contracts import KubeApi

if TYPE_CHECKING:
    from pipeline.kube.client import Client


class Sessions:
    """Hands out one session for each set of credentials, and closes it after its last user.

    Args:
        account: folder of the pod's own credentials, if not the usual one.
        alternative: how a kubeconfig is named where there are none, for messages.
        plugins: whether programs that a kubeconfig names may be run.
    """

    def __init__(
        self,
        account: Path | None = None,
        *,
        alternative: str = "set kubeconfig",
        plugins: bool = False,
    ) -> None:
        self._account = account
        self._instead = alternative
        self._plugins = plugins
        self._shared: dict[Path | None, _Shared] = {}

    def session(self, kubeconfig: Path | None) -> AbstractAsyncContextManager[KubeApi]:
        """Join the session for a kubeconfig, or for the pod's own credentials, or start it.

        Raises:
            TransientError: there are no credentials.
        """
        return self._join(kubeconfig)

    @asynccontextmanager
    async def _join(self, kubeconfig: Path | None) -> AsyncIterator[KubeApi]:
        shared = self._shared.setdefault(kubeconfig, _Shared())
        shared.users += 1
        try:
            async with shared.lock:
                if shared.client is None:
                    shared.client = await self._start(kubeconfig)
            yield shared.client
        finally:
            shared.users -= 1
            if not shared.users:
                del self._shared[kubeconfig]
                if shared.client is not None:
                    await shared.client.close()

    async def _start(self, kubeconfig: Path | None) -> "Client":
        # The client's library is loaded with it: not in the event loop, which this would hold up.
        client = await asyncio.to_thread(self._make, kubeconfig)
        try:
            await client.start()
        except BaseException:
            await client.close()
            raise
        return client

    def _make(self, kubeconfig: Path | None) -> "Client":
        from pipeline.kube.client import Client  # noqa: PLC0415
        from pipeline.kube.credentials import KubeconfigFile, ServiceAccount  # noqa: PLC0415

        if kubeconfig is not None:
            return Client(KubeconfigFile(kubeconfig, plugins=self._plugins))
        if self._account is not None:
            return Client(ServiceAccount(self._account, alternative=self._instead))
        return Client(ServiceAccount(alternative=self._instead))


class _Shared:
    """A session, if it has started, and those who use it or wait for it."""

    def __init__(self) -> None:
        self.client: Client | None = None
        self.users = 0
        self.lock = asyncio.Lock()
