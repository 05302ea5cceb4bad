"""DCGM's client library, by ctypes. Every call may block, so none is made on the event loop."""

import contextlib
import ctypes
import threading
from collections.abc import Sequence
from ctypes import byref
from pathlib import Path
from typing import Any, Final

from pipeline.base.safe_text import line
from pipeline.host.shared_libraries import ready
from sources.hostengine import structs
from sources.hostengine.options import Options
from sources.hostengine.structs import ConnectParams, Entity, FieldValue, Hierarchy, MigEntity

NAMES: Final = ("libdcgm.so.4", "libdcgm.so.3")
"""Names by which the linker finds the library. The part of its interface used here is the same."""

OK: Final = 0
VERSION_MISMATCH: Final = -12
GONE: Final = -21
NO_LIBRARY: Final = -25
_REQUIRED: Final = (
    "dcgmInit",
    "dcgmShutdown",
    "dcgmConnect_v2",
    "dcgmDisconnect",
    "dcgmGetEntityGroupEntities",
    "dcgmGetGpuInstanceHierarchy",
    "dcgmGroupCreate",
    "dcgmGroupAddEntity",
    "dcgmFieldGroupCreate",
    "dcgmWatchFields",
    "dcgmUpdateAllFields",
    "dcgmEntitiesGetLatestValues",
)
_KEEP_SAMPLES: Final = 2


class DcgmError(Exception):
    """A call of DCGM failed.

    Attributes:
        code: the returned code, `dcgmReturn_t`.
    """

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class Library:
    """The loaded library.

    Args:
        path: path of the file; None to let the linker find it.

    Raises:
        DcgmError: the library is missing or is not DCGM's library; the code is `NO_LIBRARY`.
    """

    def __init__(self, path: Path | None) -> None:
        self.name, self._dll = _load(path)
        for call in _REQUIRED:
            if not hasattr(self._dll, call):
                raise DcgmError(f"{self.name} has no {call}", NO_LIBRARY)
        self._lock = threading.Lock()
        self._users = 0
        with contextlib.suppress(AttributeError):
            self._dll.errorString.restype = ctypes.c_char_p

    def call(self, name: str, *arguments: Any) -> None:
        """Make a call.

        Raises:
            DcgmError: the call returned a code other than `DCGM_ST_OK`.
        """
        code = int(self._dll[name](*arguments))
        if code != OK:
            raise DcgmError(f"{name}: {self._error_text(code)}", code)

    def _error_text(self, code: int) -> str:
        with contextlib.suppress(AttributeError):
            text = self._dll.errorString(ctypes.c_int(code))
            if text:
                return f"{line(text.decode('utf-8', 'replace'), 120)} ({code})"
        return f"error {code}"

    def enter(self) -> None:
        """Initialise the library, unless another session did: the process has one library."""
        with self._lock:
            if not self._users:
                self.call("dcgmInit")
            self._users += 1

    def leave(self) -> None:
        """Shut the library down after its last session."""
        with self._lock:
            self._users -= 1
            if not self._users:
                self.call("dcgmShutdown")


class Session:
    """A connection to a host engine, used only on the thread that calls the library.

    Args:
        options: library, address and timeout.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._library: Library | None = None
        self._handle = ctypes.c_void_p()

    def connect(self) -> None:
        """Open a new connection.

        Raises:
            DcgmError: cannot connect to the host engine.
        """
        self.close()
        options, dcgm = self._options, library(self._options.library)
        timeout_ms = max(1, round(float(options.timeout) * 1000))
        params = ConnectParams(
            structs.version(ConnectParams, 2), 0, timeout_ms, int(bool(options.socket))
        )
        address = (options.socket or options.address).encode()
        dcgm.enter()
        try:
            dcgm.call("dcgmConnect_v2", address, byref(params), byref(self._handle))
        except DcgmError:
            dcgm.leave()
            raise
        self._library = dcgm

    def close(self) -> None:
        """End the connection and all its watches, if it is open."""
        dcgm, self._library = self._library, None
        if dcgm is not None:
            # A host engine that is gone makes these fail.
            with contextlib.suppress(DcgmError):
                dcgm.call("dcgmDisconnect", self._handle)
            with contextlib.suppress(DcgmError):
                dcgm.leave()

    def _call(self, name: str, *arguments: Any) -> None:
        if self._library is None:
            raise DcgmError("not connected", GONE)
        self._library.call(name, self._handle, *arguments)

    def entities(self, kind: int) -> tuple[int, ...]:
        """Return the ids of all entities of a kind that DCGM supports."""
        ids = (ctypes.c_uint * (structs.MAX_GPUS * 14))()
        count = ctypes.c_int(len(ids))
        self._call(
            "dcgmGetEntityGroupEntities",
            ctypes.c_int(kind),
            ids,
            byref(count),
            ctypes.c_uint(structs.ONLY_SUPPORTED),
        )
        return tuple(ids[: max(0, min(count.value, len(ids)))])

    def instances(self) -> list[MigEntity]:
        """Return all GPU instances and compute instances."""
        found = Hierarchy(version=structs.version(Hierarchy, 2))
        self._call("dcgmGetGpuInstanceHierarchy", byref(found))
        return list(found.entities[: min(found.count, len(found.entities))])

    def watch(
        self, name: str, entities: Sequence[Entity], fields: Sequence[int], every: float
    ) -> None:
        """Let the host engine read fields of entities from now on.

        Args:
            name: a unique name for the groups.
            entities: the entities to read.
            fields: ids of the fields.
            every: seconds between two reads.
        """
        group, field_group = ctypes.c_void_p(), ctypes.c_void_p()
        numbers = (ctypes.c_ushort * len(fields))(*fields)
        kind, group_name = ctypes.c_int(structs.EMPTY_GROUP), name.encode()
        self._call("dcgmGroupCreate", kind, group_name, byref(group))
        for entity in entities:
            kind, number = ctypes.c_int(entity.kind), ctypes.c_uint(entity.id)
            self._call("dcgmGroupAddEntity", group, kind, number)
        count = ctypes.c_int(len(fields))
        self._call("dcgmFieldGroupCreate", count, numbers, group_name, byref(field_group))
        self._call(
            "dcgmWatchFields",
            group,
            field_group,
            ctypes.c_longlong(round(every * 1_000_000)),
            ctypes.c_double(3 * every),
            ctypes.c_int(_KEEP_SAMPLES),
        )

    def update(self) -> None:
        """Let the host engine read all watched fields, and wait until it has."""
        self._call("dcgmUpdateAllFields", ctypes.c_int(1))

    def values(
        self, entity: Entity, fields: Sequence[int], *, live: bool = False
    ) -> list[FieldValue]:
        """Return the latest values of an entity.

        Args:
            entity: the entity.
            fields: ids of the fields.
            live: whether to read them now, which is possible for fields that are not watched.
        """
        found = (FieldValue * len(fields))()
        for value in found:
            value.version = structs.version(FieldValue, 2)
        self._call(
            "dcgmEntitiesGetLatestValues",
            byref(entity),
            ctypes.c_uint(1),
            (ctypes.c_ushort * len(fields))(*fields),
            ctypes.c_uint(len(fields)),
            ctypes.c_uint(structs.LIVE if live else 0),
            found,
        )
        return list(found)


_LOADED: Final[dict[Path | None, Library]] = {}
_LOADING: Final = threading.Lock()


def library(path: Path | None) -> Library:
    """Return the library of a path, loaded once for all users."""
    with _LOADING:
        if path not in _LOADED:
            _LOADED[path] = Library(path)
        return _LOADED[path]


def _load(path: Path | None) -> tuple[str, ctypes.CDLL]:
    reasons: list[str] = []
    for name in (str(path),) if path is not None else NAMES:
        try:
            # Reading the file first releases the GIL; loading holds it.
            ready(name)
            return name, ctypes.CDLL(name)
        except OSError as error:
            reasons.append(line(str(error)))
    raise DcgmError("; ".join(reasons), NO_LIBRARY)
