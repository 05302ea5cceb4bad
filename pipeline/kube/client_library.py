"""The parts of `kubernetes_asyncio` that podgpu uses, without the rest of the package.

Importing the package executes one module for each type and each group of the API: 38 MB for
classes of which none is used here, since objects are read as JSON. So its packages are put into
place without being executed, and of their modules only those load that are asked for.
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
    """What is used of the library.

    Attributes:
        configuration: class of what a client needs to know: server, certificates, tokens.
        rest: class of a session with a server: TLS, proxies, pool of connections.
        in_cluster: class that fills a configuration from a pod's service account.
        kubeconfig: coroutine function that fills one from a file, and returns a loader which can
            do so again.
    """

    configuration: Any
    rest: Any
    in_cluster: Any
    kubeconfig: Any


@cache
def library() -> Library:
    """Load the library's parts. Takes a tenth of a second: call it in a thread."""
    # It logs what credential plugins write, tokens among it; its errors tell what is needed.
    logging.getLogger(_PACKAGE).setLevel(logging.CRITICAL + 1)
    if _PACKAGE in sys.modules:
        return _parts()
    try:
        _shells()
        return _parts()
    except Exception:  # noqa: BLE001 - whatever another version stumbles over
        for name in [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]:
            del sys.modules[name]
        return _parts()


def _parts() -> Library:
    # In this order: what fills a configuration looks for its class in the package.
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
    """Stands where the library imports its own client, which it needs for other uses."""


def _shells() -> None:
    """Put packages into place whose own code doesn't run.

    Raises:
        ImportError: the library isn't there, or isn't laid out as expected.
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
