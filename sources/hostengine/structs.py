"""The structs and values of DCGM's interface, as in its public headers; the same in DCGM 3 and 4.

`dcgm_structs.h`, `dcgm_agent.h` and `dcgm_fields.h` of https://github.com/NVIDIA/go-dcgm.
"""

import ctypes
from typing import Final

from pipeline.fields.value_bounds import is_blank

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

_BLANK_TEXT: Final = "<<<"
_HALF: Final = 1 << 16


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
    """Return the value of a struct's `version`: size of the struct, and number of its layout."""
    return ctypes.sizeof(struct) | number << 24


def number(found: FieldValue | None) -> int | float | None:
    """Return the number in a value; None if the value is blank or not a number."""
    if found is None or found.type not in (WHOLE, FRACTION):
        return None
    value = found.value.i64 if found.type == WHOLE else found.value.dbl
    return None if is_blank(value) else value


def text(found: FieldValue | None) -> str:
    """Return the text in a value; empty if the value is blank or not a text."""
    if found is None or found.type != TEXT:
        return ""
    decoded = found.value.str.decode("utf-8", "replace")
    return "" if decoded.startswith(_BLANK_TEXT) else decoded


def major(found: FieldValue | None) -> int:
    """Return the major compute capability; 0 if it is unknown.

    According to the headers it is the upper half of 64 bits, according to DCGM's code of 32 bits.
    """
    value = number(found)
    if value is None or value < 0:
        return 0
    integer = int(value)
    return integer >> 32 if integer >> 32 else integer // _HALF
