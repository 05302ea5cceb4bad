"""The structs of DCGM's interface, as in its public headers; the same in DCGM 3 and 4.

`dcgm_structs.h`, `dcgm_agent.h` and `dcgm_fields.h` of https://github.com/NVIDIA/go-dcgm.
"""

import ctypes
from typing import Final

GPU: Final = 1
INSTANCE: Final = 4
COMPUTE: Final = 5
"""Kinds of entities: `dcgm_field_entity_group_t`."""

EMPTY_GROUP: Final = 1
ONLY_SUPPORTED: Final = 1
LIVE: Final = 1
"""`DCGM_GROUP_EMPTY`, `DCGM_GEGE_FLAG_ONLY_SUPPORTED` and `DCGM_FV_FLAG_LIVE_DATA`."""

MAX_GPUS: Final = 32
_MAX_INSTANCES: Final = MAX_GPUS * 14

WHOLE: Final = ord("i")
FRACTION: Final = ord("d")
TEXT: Final = ord("s")
"""Types of values: `DCGM_FT_INT64`, `DCGM_FT_DOUBLE`, `DCGM_FT_STRING`."""


class Entity(ctypes.Structure):
    """`dcgmGroupEntityPair_t`."""

    _fields_ = (("kind", ctypes.c_int), ("id", ctypes.c_uint))
    kind: int
    id: int


class ConnectParams(ctypes.Structure):
    """`dcgmConnectV2Params_v2`."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("persist", ctypes.c_uint),
        ("timeout_ms", ctypes.c_uint),
        ("is_socket", ctypes.c_uint),
    )


class _Value(ctypes.Union):
    _fields_ = (
        ("i64", ctypes.c_int64),
        ("dbl", ctypes.c_double),
        ("str", ctypes.c_char * 256),
        ("blob", ctypes.c_char * 4096),
    )
    i64: int
    dbl: float
    str: bytes


class FieldValue(ctypes.Structure):
    """`dcgmFieldValue_v2`."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("kind", ctypes.c_int),
        ("entity", ctypes.c_uint),
        ("field", ctypes.c_ushort),
        ("type", ctypes.c_ushort),
        ("status", ctypes.c_int),
        ("unused", ctypes.c_uint),
        ("ts", ctypes.c_int64),
        ("value", _Value),
    )
    version: int
    field: int
    type: int
    status: int
    ts: int
    value: _Value


class _MigInfo(ctypes.Structure):
    _fields_ = (
        ("gpu_uuid", ctypes.c_char * 128),
        ("gpu_index", ctypes.c_uint),
        ("gi", ctypes.c_uint),
        ("ci", ctypes.c_uint),
        ("profile", ctypes.c_uint),
        ("slices", ctypes.c_uint),
    )
    gi: int
    ci: int
    profile: int
    slices: int


class MigEntity(ctypes.Structure):
    """`dcgmMigHierarchyInfo_v2`."""

    _fields_ = (("entity", Entity), ("parent", Entity), ("info", _MigInfo))
    entity: Entity
    parent: Entity
    info: _MigInfo


class Hierarchy(ctypes.Structure):
    """`dcgmMigHierarchy_v2`."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("count", ctypes.c_uint),
        ("entities", MigEntity * _MAX_INSTANCES),
    )
    count: int
    entities: "ctypes.Array[MigEntity]"


def version(struct: type[ctypes.Structure], number: int) -> int:
    """Return the value of `version`: the size of the struct and the number of its layout."""
    return ctypes.sizeof(struct) | number << 24
