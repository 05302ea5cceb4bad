"""Sessions with API servers, one session for each set of credentials."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.component.contracts import KubeApi
from pipeline.kube.api_request import TIMEOUT
from pipeline.kube.credentials import ACCOUNT, KubeconfigFile, ServiceAccount

if TYPE_CHECKING:
    from pipeline.kube.client import Client


class Sessions:
    """Shares one session per set of credentials, and closes it after its last user.

    Args:
        account: folder of the service account's credentials.
        alternative: how to set a kubeconfig, for messages about missing credentials.
        plugins: whether credential plugins of a kubeconfig may run.
        request_timeout: seconds for one request; a stream is not limited.
    """

    def __init__(
        self,
        account: Path = ACCOUNT,
        *,
        alternative: str = "set kubeconfig",
        plugins: bool = False,
        request_timeout: float = TIMEOUT,
    ) -> None:
        self._account = account
        self._alternative = alternative
        self._plugins = plugins
        self._request_timeout = request_timeout
        self._shared: dict[Path | None, _Shared] = {}

    @asynccontextmanager
    async def session(self, kubeconfig: Path | None) -> AsyncIterator[KubeApi]:
        """Provide the session for a kubeconfig; for None, of the pod's service account.

        The session starts with its first user, and ends with its last.

        Raises:
            TransientError: there are no usable credentials.
        """
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
        # Importing the client imports aiohttp, which would block the event loop.
        client = await asyncio.to_thread(self._new_client, kubeconfig)
        try:
            await client.load()
        except BaseException:
            await client.close()
            raise
        return client

    def _new_client(self, kubeconfig: Path | None) -> "Client":
        from pipeline.kube.client import Client  # noqa: PLC0415

        credentials = (
            ServiceAccount(self._account, alternative=self._alternative)
            if kubeconfig is None
            else KubeconfigFile(kubeconfig, plugins=self._plugins)
        )
        return Client(credentials, self._request_timeout)


class _Shared:
    """A session, once it has started, and the number of its users, including waiting ones."""

    def __init__(self) -> None:
        self.client: Client | None = None
        self.users = 0
        self.lock = asyncio.Lock()
