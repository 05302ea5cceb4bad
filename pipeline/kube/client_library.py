"""The parts of `kubernetes_asyncio` that podgpu uses, without the rest of the package.

Importing the whole package loads one module for each type and group of the API. That takes 38 MB
for classes that podgpu does not use, since it reads objects as JSON. So this module puts empty
packages in place of the library's, and imports only the modules that podgpu uses.
"""

import importlib.util
import logging
import sys
from dataclasses import dataclass
from functools import cache
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

_PACKAGE = "kubernetes_asyncio"
_SHELLS = (_PACKAGE, f"{_PACKAGE}.client")


@dataclass(frozen=True, slots=True)
class Library:
    """The parts of the library that podgpu uses.

    Attributes:
        configuration: class of a client's configuration: server, certificates, tokens.
        rest: class of a session with a server: TLS, proxies, connection pool.
        in_cluster: class that fills a configuration from a pod's service account.
        kubeconfig: coroutine function that fills a configuration from a file, and returns a loader
            that can do so again.
    """

    configuration: Any
    rest: Any
    in_cluster: Any
    kubeconfig: Any


@cache
def library() -> Library:
    """Import the library's parts. This takes a tenth of a second: call it in a thread."""
    # The library logs the output of credential plugins, which contains tokens. Its exceptions
    # suffice.
    logging.getLogger(_PACKAGE).setLevel(logging.CRITICAL + 1)
    if _PACKAGE in sys.modules:
        return _parts()
    try:
        _shells()
        return _parts()
    except Exception:  # noqa: BLE001 - another version of the library may need the whole package
        for name in [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]:
            del sys.modules[name]
        return _parts()


def _parts() -> Library:
    # The order matters: the loaders expect the class in the package.
    from kubernetes_asyncio.client.configuration import Configuration  # noqa: PLC0415

    client = sys.modules[f"{_PACKAGE}.client"]
    if not hasattr(client, "Configuration"):
        client.Configuration = Configuration  # type: ignore[attr-defined]
        client.ApiClient = _NotLoaded  # type: ignore[attr-defined]
    from kubernetes_asyncio.client.rest import RESTClientObject  # noqa: PLC0415
    from kubernetes_asyncio.config.incluster_config import InClusterConfigLoader  # noqa: PLC0415
    from kubernetes_asyncio.config.kube_config import load_kube_config  # noqa: PLC0415

    return Library(Configuration, RESTClientObject, InClusterConfigLoader, load_kube_config)


class _NotLoaded:
    """Placeholder for the library's own client, which the loaders import but do not use here."""


def _shells() -> None:
    """Put empty packages in place of the library's, without running their code.

    Raises:
        ImportError: the library is missing, or has an unexpected layout.
    """
    path = None
    parent: ModuleType | None = None
    for name in _SHELLS:
        spec = importlib.util.find_spec(name) if path is None else PathFinder.find_spec(name, path)
        if spec is None or spec.submodule_search_locations is None:
            raise ImportError(f"no package {name}")
        shell = importlib.util.module_from_spec(spec)
        sys.modules[name] = shell
        if parent is not None:
            setattr(parent, name.rpartition(".")[2], shell)
        parent, path = shell, spec.submodule_search_locations
