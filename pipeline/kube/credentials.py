"""Credentials for an API server, from a pod's service account or from a kubeconfig."""

import asyncio
import os
import signal
import stat
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from pipeline.base.errors import CodeRefusedError, TransientError
from pipeline.component.code_permissions import FIX
from pipeline.kube.client_library import kubeconfig_reader
from pipeline.kube.kubeconfig_errors import describe_error, program

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PLUGIN_SECONDS = 30.0
_KILL_TIMEOUT: Final = 2.0
"""Seconds in which the kernel kills a process. A process that waits for a disk takes longer."""

_NONE = "no credentials in this kubeconfig"


@dataclass(slots=True)
class Access:
    """Address and credentials of a server. The library's reader of kubeconfigs sets attributes.

    Attributes:
        host: URL of the server.
        api_key: the entry `BearerToken` is the authentication scheme and the token.
        ssl_ca_cert: path of the certificates of authorities; None for those of the system.
        cert_file: path of the client certificate.
        key_file: path of the key of the client certificate.
        verify_ssl: whether the server's certificate is verified.
        tls_server_name: the name in the server's certificate; None for the name in `host`.
        proxy: URL of a proxy; None for the proxy of the environment variables.
        connection: equal for two objects if both can use the same connections.
    """

    host: str = ""
    api_key: dict[str, str] = field(default_factory=dict)
    ssl_ca_cert: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify_ssl: bool = True
    tls_server_name: str | None = None
    proxy: str | None = None
    connection: tuple[object, ...] = ()

    @property
    def authorization(self) -> str:
        """Value of the header `Authorization`; empty if a client certificate identifies podgpu."""
        # A token file often ends with a newline, which a header must not contain.
        return str(self.api_key.get("BearerToken", "")).strip()

    @property
    def server(self) -> str:
        """The server's address for messages, without user, password and query."""
        scheme, slashes, rest = str(self.host).rpartition("://")
        place, slash, path = rest.partition("/")
        return scheme + slashes + place.rpartition("@")[2] + slash + path.partition("?")[0]

    def note_files(self) -> None:
        """Set `connection` from the attributes and from the state of the certificate files.

        Raises:
            OSError: one of the files is not accessible.
        """
        files = (self.ssl_ca_cert, self.cert_file, self.key_file)
        self.connection = (
            self.host,
            self.verify_ssl,
            self.tls_server_name,
            self.proxy,
            # Certificates are replaced in place.
            *((name, _stamp(Path(name))) for name in files if name),
        )


@dataclass(frozen=True)
class ServiceAccount:
    """Credentials of the pod in which podgpu runs.

    Attributes:
        folder: folder of the token and the certificate. The kubelet replaces the token every hour.
        environ: environment variables, with the server's address, which the kubelet sets.
        alternative: how to set other credentials, for messages.
    """

    folder: Path = ACCOUNT
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    alternative: str = "set kubeconfig"

    @property
    def place(self) -> str:
        """The token file, where the credentials come from."""
        return str(self.folder / "token")

    def load(self, *, reload: bool) -> Access:  # noqa: ARG002 - nothing is cached
        """Read address, token and certificate. Blocks: call it in a thread.

        Raises:
            TransientError: one of them is missing or cannot be read.
        """
        try:
            host = self.environ["KUBERNETES_SERVICE_HOST"]
            address = f"[{host}]" if ":" in host else host
            access = Access(
                f"https://{address}:{self.environ['KUBERNETES_SERVICE_PORT']}",
                {"BearerToken": f"Bearer {self._content('token')}"},
                str(self.folder / "ca.crt"),
            )
            self._content("ca.crt")
            access.note_files()
        except (KeyError, OSError, ValueError) as error:
            why = f"{error.args[0]} is not set" if isinstance(error, KeyError) else str(error)
            raise TransientError(
                "no service account credentials: KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT, "
                f"{self.folder}/token or {self.folder}/ca.crt is missing or invalid ({why}); run "
                f"podgpu in a pod with a service account, or {self.alternative}"
            ) from error
        return access

    def _content(self, name: str) -> str:
        if content := (self.folder / name).read_text():
            return content
        raise ValueError(f"{name} is empty")


class PluginLoop(asyncio.SelectorEventLoop):
    """An event loop that can kill all processes started in it, with their child processes.

    Each process runs in its own session and without standard input, so that it cannot prompt.

    Args:
        allowed: whether processes may be started at all.

    Attributes:
        commands: the programs that were started, in order.
        refused: the programs that were not started because that is not allowed, in order.
    """

    def __init__(self, *, allowed: bool) -> None:
        super().__init__()
        self.commands: list[str] = []
        self.refused: list[str] = []
        self._allowed = allowed
        self._started: list[asyncio.SubprocessTransport] = []

    async def subprocess_exec(
        self, protocol_factory: Any, program: Any, *args: Any, **options: Any
    ) -> tuple[Any, Any]:
        """Start a process, as `asyncio.create_subprocess_exec` does.

        Raises:
            PermissionError: no process may be started.
        """
        if not self._allowed:
            self.refused.append(os.fsdecode(program))
            raise PermissionError(f"{os.fsdecode(program)} may not be started")
        options |= {"stdin": subprocess.DEVNULL, "start_new_session": True}
        self.commands.append(os.fsdecode(program))
        transport, protocol = await super().subprocess_exec(
            protocol_factory, program, *args, **options
        )
        self._started.append(transport)
        return transport, protocol

    async def kill(self) -> None:
        """Kill all processes that still run, and wait up to two seconds for their end.

        A child process that started its own session is not killed.
        """
        for transport in self._started:
            with suppress(OSError):
                _kill(transport)
        with suppress(TimeoutError):
            async with asyncio.timeout(_KILL_TIMEOUT):
                # asyncio has no public event for the end of a transport.
                while any(each.get_returncode() is None for each in self._started):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        for transport in self._started:
            transport.close()


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
        """Path of the kubeconfig, from which the credentials come."""
        return str(self._path)

    def load(self, *, reload: bool) -> Access:
        """Read the file and the files that it names; run a plugin again when its token expires.

        Blocks: call it in a thread.

        Args:
            reload: whether the server rejected the previous credentials; then cached credentials
                are discarded.

        Raises:
            TransientError: there are no credentials.
            CodeRefusedError: the credentials come from a credential plugin, which may not run.
        """
        # Kept for the next time only if everything succeeds.
        loader, self._loader = self._loader, None
        access = Access()
        # Use a separate event loop, in which reading files may block.
        loop = PluginLoop(allowed=self._plugins)
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                stamp = self._checked_stamp()
                if reload or stamp != self._stamp:
                    loader = None
                loader = runner.run(self._fill(access, loader, loop))
        except TransientError:
            raise
        except Exception as error:  # noqa: BLE001 - the library raises many types for a bad file
            self._check_refused(loop)
            text = describe_error(error, self._path, loop.commands)
            raise self._problem(f"{_NONE}: {text}") from None
        access.note_files()
        self._loader, self._stamp = loader, stamp
        return access

    def _problem(self, text: str) -> TransientError:
        """Return an error. Raise it `from None`: the library's text may contain secrets."""
        return TransientError(f"{self._path}: {text}")

    def _checked_stamp(self) -> tuple[int, int, int]:
        """Return the state of the file. Refuse a pipe: opening it would wait for a writer."""
        if not stat.S_ISREG(self._path.stat().st_mode):
            raise self._problem("is not a regular file; give the path of one")
        return _stamp(self._path)

    async def _fill(self, access: Access, loader: Any, loop: PluginLoop) -> Any:
        """Fill `access` with a loader, or with a new one if there is none; return the loader."""
        limit = asyncio.timeout(_PLUGIN_SECONDS)
        try:
            async with limit:
                if loader is None:
                    loader = await kubeconfig_reader()(
                        config_file=str(self._path),
                        client_configuration=access,
                        persist_config=False,
                    )
                else:
                    await loader.load_and_set(access)
        except TimeoutError:
            if not limit.expired():
                raise
            await loop.kill()
            late = f"did not respond within {_PLUGIN_SECONDS:g} s"
            text = f"{_NONE}: the server that renews tokens {late}; check that it is reachable"
            if loop.commands:
                plugin = f"the credential plugin {program(loop.commands[-1])}"
                text = f"{plugin} {late} and was killed; check that it runs without user input"
            raise self._problem(text) from None
        # Without the plugin, the library continues and uses a token if there is one.
        self._check_refused(loop)
        if loop.commands and not (access.authorization or access.cert_file):
            raise self._problem(
                f"{_NONE}: the credential plugin {program(loop.commands[-1])} returned neither a "
                "token nor a certificate with its key; run it by hand where podgpu runs"
            )
        return loader

    def _check_refused(self, loop: PluginLoop) -> None:
        if loop.refused:
            # Without its cause: the library's text repeats the content of the file.
            raise CodeRefusedError(
                f"{self._path}: {_NONE}: podgpu does not run the credential plugin "
                f"{program(loop.refused[-1])} because the configuration names this file; {FIX}"
            ) from None


Credentials: TypeAlias = ServiceAccount | KubeconfigFile


def _stamp(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


def _kill(transport: asyncio.SubprocessTransport) -> None:
    leader = transport.get_pid()
    if transport.get_returncode() is not None:
        # The leader has ended, but its group may have processes. While it has, the kernel does not
        # reuse the PID. So if the PID exists, the group is empty, and the PID is another process'.
        with suppress(ProcessLookupError):
            os.kill(leader, 0)
            return
    os.killpg(leader, signal.SIGKILL)
