"""The inner protocol layer: messages of runtime and plugin, nri.pkg.api.v1alpha1."""

from collections.abc import Mapping
from enum import IntEnum
from functools import partial
from typing import Final

from sources.nri import ttrpc

RUNTIME_SERVICE: Final = "nri.pkg.api.v1alpha1.Runtime"
PLUGIN_SERVICE: Final = "nri.pkg.api.v1alpha1.Plugin"


class Event(IntEnum):
    """The events of NRI with their numbers."""

    RUN_POD_SANDBOX = 1
    STOP_POD_SANDBOX = 2
    REMOVE_POD_SANDBOX = 3
    CREATE_CONTAINER = 4
    POST_CREATE_CONTAINER = 5
    START_CONTAINER = 6
    POST_START_CONTAINER = 7
    UPDATE_CONTAINER = 8
    POST_UPDATE_CONTAINER = 9
    STOP_CONTAINER = 10
    REMOVE_CONTAINER = 11
    UPDATE_POD_SANDBOX = 12
    POST_UPDATE_POD_SANDBOX = 13
    VALIDATE_CONTAINER_ADJUSTMENT = 14

    @property
    def bit(self) -> int:
        """The event's bit in a plugin's event mask."""
        return 1 << (self - 1)


METHODS: Final[Mapping[str, Event]] = {
    "".join(word.capitalize() for word in event.name.split("_")): event for event in Event
}
"""The plugin's methods for single events. Runtimes with NRI before 0.12 have such a method for only
a few events, and use StateChange for the others."""

encode = partial(ttrpc.encode, package="nri")
decode = partial(ttrpc.decode, package="nri")
