"""Credentials for an API server, from a pod's service account or from a kubeconfig."""

import asyncio
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from pipeline.base.errors import CodeRefusedError, TransientError
from pipeline.component.code_permissions import FIX
from pipeline.kube.client_library import library
from pipeline.kube.credential_plugins import PluginLoop
from pipeline.kube.kubeconfig_errors import describe_error, program

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PLUGIN_SECONDS = 30.0
_NONE = "no credentials in this kubeconfig"


@dataclass(frozen=True, slots=True)
class Access:
    """Address and credentials of a server.

    Attributes:
        configuration: the library's configuration.
        authorization: value of the header; empty if a client certificate identifies podgpu.
        connection: equal for two objects if the connections of one can be used for the other.
    """

    configuration: Any
    authorization: str
    connection: tuple[object, ...]

    @property
    def server(self) -> str:
        """The server's address for people, without user, password and query."""
        scheme, slashes, rest = str(self.configuration.host).rpartition("://")
        place, slash, path = rest.partition("/")
        return scheme + slashes + place.rpartition("@")[2] + slash + path.partition("?")[0]


class Credentials(Protocol):
    """Credentials that can be read again and again."""

    @property
    def place(self) -> str:
        """Where the credentials come from, for people."""
        ...

    def load(self, *, reload: bool) -> Access:
        """Read the present credentials. Blocks: call it in a thread.

        Args:
            reload: the server rejected the previous credentials; discard all cached ones.

        Raises:
            TransientError: they are missing or cannot be read.
        """
        ...


@dataclass(frozen=True)
class ServiceAccount:
    """Credentials of the pod in which podgpu runs.

    Attributes:
        folder: where the kubelet puts token and certificate; it replaces the token every hour.
        environ: has the server's address, which the kubelet sets.
        alternative: how to set other credentials, for messages.
    """

    folder: Path = _ACCOUNT
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    alternative: str = "set kubeconfig"

    @property
    def place(self) -> str:
        """The token file."""
        return str(self.folder / "token")

    def load(self, *, reload: bool) -> Access:  # noqa: ARG002 - nothing is cached
        """Read address, token and certificate."""
        try:
            configuration = library().configuration()
            loader = library().in_cluster(
                str(self.folder / "token"),
                str(self.folder / "ca.crt"),
                try_refresh_token=False,
                environ=self.environ,
            )
            loader.load_and_set(configuration)
        except Exception as error:  # errors of the library, OSError, UnicodeError
            raise TransientError(
                f"no service account credentials: KUBERNETES_SERVICE_HOST, {self.folder}/token or "
                f"{self.folder}/ca.crt is missing or invalid ({error}); run podgpu in a pod with a "
                f"service account, or {self.alternative}"
            ) from error
        return _access(configuration)


class _KnownProblemError(Exception):
    """An error whose cause is known; the text names the cause and the fix."""


class KubeconfigFile:
    """Credentials from a kubeconfig: certificates, a token or its file, or a credential plugin.

    Args:
        path: the kubeconfig.
        plugins: whether credential plugins may run.
    """

    def __init__(self, path: Path, *, plugins: bool = False) -> None:
        self._path = path
        self._plugins = plugins
        self._loader: Any = None
        self._stamp: object = None

    @property
    def place(self) -> str:
        """The file."""
        return str(self._path)

    def load(self, *, reload: bool) -> Access:
        """Read the file and the files that it names; run a plugin again when its token expires.

        Raises:
            TransientError: there are no credentials.
            CodeRefusedError: they come from a credential plugin, which may not run.
        """
        try:
            _check_file(self._path)
            stamp = _stamp(self._path)
            if reload or stamp != self._stamp:
                self._loader = None
            configuration = library().configuration()
            # Use a separate event loop, in which reading files may block.
            with asyncio.Runner(loop_factory=partial(PluginLoop, allowed=self._plugins)) as runner:
                runner.run(self._fill(configuration))
            self._stamp = stamp
        except CodeRefusedError:
            self._loader = None
            raise
        except _KnownProblemError as error:
            self._loader = None
            raise TransientError(f"{self._path}: {error}") from None
        except Exception as error:  # noqa: BLE001 - the library raises many types for a bad file
            self._loader = None
            # Without its cause: the library's text may contain secrets, which a traceback shows.
            raise TransientError(
                f"{self._path}: {_NONE}: {describe_error(error, self._path)}"
            ) from None
        return _access(configuration)

    async def _fill(self, configuration: Any) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, PluginLoop)  # noqa: S101 - see above
        limit = asyncio.timeout(_PLUGIN_SECONDS)
        try:
            async with limit:
                if self._loader is None:
                    self._loader = await library().kubeconfig(
                        config_file=str(self._path),
                        client_configuration=configuration,
                        persist_config=False,
                    )
                else:
                    await self._loader.load_and_set(configuration)
        except TimeoutError as error:
            if not limit.expired():
                raise
            await loop.kill()
            late = f"did not respond within {_PLUGIN_SECONDS:g} s"
            if not loop.commands:
                raise _KnownProblemError(
                    f"{_NONE}: the server that renews tokens {late}; check that it is reachable"
                ) from error
            raise _KnownProblemError(
                f"the credential plugin {program(loop.commands[-1])} {late} and was killed; check "
                "that it runs without user input"
            ) from error
        except Exception as error:  # only here the commands that were started are known
            self._check_refused(loop)
            raise _KnownProblemError(
                f"{_NONE}: {describe_error(error, self._path, loop.commands)}"
            ) from error
        # Without the plugin, the library continues and uses a token if there is one.
        self._check_refused(loop)
        if loop.commands and not _has_credentials(configuration):
            raise _KnownProblemError(
                f"{_NONE}: the credential plugin {program(loop.commands[-1])} returned neither a "
                "token nor a certificate with its key; run it by hand where podgpu runs"
            )

    def _check_refused(self, loop: PluginLoop) -> None:
        if loop.refused:
            # Without its cause: the library's text repeats the content of the file.
            raise CodeRefusedError(
                f"{self._path}: {_NONE}: podgpu does not run the credential plugin "
                f"{program(loop.refused[-1])} because the configuration names this file; {FIX}"
            ) from None


def _check_file(path: Path) -> None:
    """Check that a path is a file. If it were a pipe, opening it would wait for a writer.

    Raises:
        OSError: it is not accessible.
        _KnownProblemError: it is not a file.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise _KnownProblemError("is not a regular file; give the path of one")


def _has_credentials(configuration: Any) -> bool:
    return bool(configuration.api_key.get("BearerToken") or configuration.cert_file)


def _access(configuration: Any) -> Access:
    files = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    return Access(
        configuration,
        # A token file often ends with a newline, which a header must not contain.
        str(configuration.api_key.get("BearerToken", "")).strip(),
        (
            configuration.host,
            configuration.verify_ssl,
            configuration.tls_server_name,
            configuration.proxy,
            # Certificates are loaded once for each connection pool, and replaced in place.
            *((name, _stamp(Path(name))) for name in files if name),
        ),
    )


def _stamp(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino
