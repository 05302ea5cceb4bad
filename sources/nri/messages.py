"""The inner protocol layer: messages of runtime and plugin, of the package nri.pkg.api.v1alpha1."""

from functools import partial
from typing import Final

from sources.nri import ttrpc

RUNTIME_SERVICE: Final = "nri.pkg.api.v1alpha1.Runtime"
PLUGIN_SERVICE: Final = "nri.pkg.api.v1alpha1.Plugin"


EVENTS: Final = (
    "RunPodSandbox",
    "StopPodSandbox",
    "RemovePodSandbox",
    "CreateContainer",
    "PostCreateContainer",
    "StartContainer",
    "PostStartContainer",
    "UpdateContainer",
    "PostUpdateContainer",
    "StopContainer",
    "RemoveContainer",
    "UpdatePodSandbox",
    "PostUpdatePodSandbox",
    "ValidateContainerAdjustment",
)
"""The events in the order of their numbers, which begin at 1; each is also a method of the plugin.
A runtime with NRI before 0.12 calls its own method for only a few events, otherwise StateChange."""

encode = partial(ttrpc.encode, package="nri")
decode = partial(ttrpc.decode, package="nri")
