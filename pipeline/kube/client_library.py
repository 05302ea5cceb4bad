"""The part of `kubernetes_asyncio` that reads kubeconfigs, without the rest of the package.

Importing the whole package loads one module for each type and group of the API. That takes 38 MB
for classes that podgpu does not use, since it reads objects as JSON. So this module registers empty
packages in place of the library's, and imports only the reader of kubeconfigs.
"""

import importlib.util
import logging
import sys
from functools import cache
from types import ModuleType
from typing import Any

_PACKAGE = "kubernetes_asyncio"


@cache
def kubeconfig_reader() -> Any:
    """Import and return the library's coroutine function that fills an `Access` from a kubeconfig.

    That function returns a loader, which can fill an `Access` again. The import takes a while: call
    this in a thread.
    """
    # The library logs the output of credential plugins, which contains tokens. Its exceptions
    # suffice.
    logging.getLogger(_PACKAGE).setLevel(logging.CRITICAL + 1)
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is not None and _PACKAGE not in sys.modules:
        client = ModuleType(f"{_PACKAGE}.client")
        # The reader imports these names, and uses them only for functions that podgpu does not use.
        client.ApiClient = client.Configuration = object  # type: ignore[attr-defined]
        sys.modules |= {_PACKAGE: importlib.util.module_from_spec(spec), client.__name__: client}
    from kubernetes_asyncio.config.kube_config import load_kube_config  # noqa: PLC0415

    return load_kube_config
