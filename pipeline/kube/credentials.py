"""Where the address of an API server and the right to talk to it come from."""

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
    """What a client needs to talk to a server.

    Attributes:
        configuration: the library's.
        authorization: value of the header; empty when certificates alone tell who we are.
        connection: equal for two of these if one's connections serve the other as well.
    """

    configuration: Any
    authorization: str
    connection: tuple[object, ...]

    @property
    def server(self) -> str:
        """The server's address for people, without a user, a password and a query."""
        scheme, slashes, rest = str(self.configuration.host).rpartition("://")
        place, slash, path = rest.partition("/")
        return scheme + slashes + place.rpartition("@")[2] + slash + path.partition("?")[0]


class Credentials(Protocol):
    """A place that credentials are read from, again and again."""

    @property
    def place(self) -> str:
        """The place, for people."""
        ...

    def load(self, *, reload: bool) -> Access:
        """Read what is there now. Blocks: call it in a thread.

        Args:
            reload: what was read before is not accepted any more; keep none of it.

        Raises:
            TransientError: it isn't there, or can't be read.
        """
        ...


@dataclass(frozen=True)
class ServiceAccount:
    """Credentials of the pod that podgpu runs in.

    Attributes:
        folder: where the kubelet puts token and certificate; it exchanges the token each hour.
        environ: where the kubelet puts the server's address.
        alternative: how other credentials are named, for messages.
    """

    folder: Path = _ACCOUNT
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    alternative: str = "set kubeconfig"

    @property
    def place(self) -> str:
        """The token's file."""
        return str(self.folder / "token")

    def load(self, *, reload: bool) -> Access:  # noqa: ARG002 - nothing is kept
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
        except Exception as error:  # the library's own, OSError, UnicodeError
            raise TransientError(
                f"no credentials of a pod: KUBERNETES_SERVICE_HOST and {self.folder}/token, "
                f"ca.crt were looked for ({error}); run podgpu in a pod with a service account, "
                f"or {self.alternative}"
            ) from error
        return _access(configuration)


class _KnownProblemError(Exception):
    """It is known what is wrong; the text names it and the mend."""


class KubeconfigFile:
    """Credentials from a kubeconfig: certificates, a token or its file, a plugin that is run.

    Args:
        path: the file.
        plugins: whether a program that it names may be run.
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
        """Read the file and what it points to; a plugin runs again once its token expires.

        Raises:
            TransientError: there are none.
            CodeRefusedError: they come from a plugin, which may not be run.
        """
        try:
            _check_file(self._path)
            stamp = _stamp(self._path)
            if reload or stamp != self._stamp:
                self._loader = None
            configuration = library().configuration()
            # In a loop of its own: reading files blocks, a plugin is waited for asynchronously.
            with asyncio.Runner(loop_factory=partial(PluginLoop, allowed=self._plugins)) as runner:
                runner.run(self._fill(configuration))
            self._stamp = stamp
        except CodeRefusedError:
            self._loader = None
            raise
        except _KnownProblemError as error:
            self._loader = None
            raise TransientError(f"{self._path}: {error}") from None
        except Exception as error:  # noqa: BLE001 - a bad file makes it stumble in many ways
            self._loader = None
            # Without its cause, whose text may hold secrets: a traceback would show it.
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
            late = f"did not answer within {_PLUGIN_SECONDS:g} s"
            if not loop.commands:
                raise _KnownProblemError(
                    f"{_NONE}: the server that renews tokens {late}; see that it can be reached"
                ) from error
            raise _KnownProblemError(
                f"the plugin {program(loop.commands[-1])} {late}, and was ended; see that it works "
                "without anybody to answer its questions"
            ) from error
        except Exception as error:  # only here it is known whether a plugin was asked
            self._check_refused(loop)
            raise _KnownProblemError(
                f"{_NONE}: {describe_error(error, self._path, loop.commands)}"
            ) from error
        # The library goes on without the plugin, with a token if there is one.
        self._check_refused(loop)
        if loop.commands and not _has_credentials(configuration):
            raise _KnownProblemError(
                f"{_NONE}: the plugin {program(loop.commands[-1])} gave neither a token nor a "
                "certificate with its key; run it by hand where podgpu runs"
            )

    def _check_refused(self, loop: PluginLoop) -> None:
        if loop.refused:
            # Without what was raised: the library repeats what stands in the file.
            raise CodeRefusedError(
                f"{self._path}: {_NONE}: the plugin {program(loop.refused[-1])} is not run, since "
                f"the configuration names this file; {FIX}"
            ) from None


def _check_file(path: Path) -> None:
    """See that it is a file: opening a pipe, as its library does, would wait for a writer.

    Raises:
        OSError: it can't be looked at.
        _ToldError: it is no file.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise _KnownProblemError("is not a regular file; give the path of one")


def _has_credentials(configuration: Any) -> bool:
    return bool(configuration.api_key.get("BearerToken") or configuration.cert_file)


def _access(configuration: Any) -> Access:
    files = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    return Access(
        configuration,
        # A file that ends with a newline is common, a header with one is refused.
        str(configuration.api_key.get("BearerToken", "")).strip(),
        (
            configuration.host,
            configuration.verify_ssl,
            configuration.tls_server_name,
            configuration.proxy,
            # Certificates are loaded once per connection pool, and exchanged in place.
            *((name, _stamp(Path(name))) for name in files if name),
        ),
    )


def _stamp(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino
